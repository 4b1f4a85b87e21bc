"""Confidence in the model: it falls while measurements are worse than predicted and rises again once they agree.

The reactive guard acts at once on measurements, and the confidence is its memory. The cause of the model's error (a
profile off by a fifth, another load on the machine, changed lengths) persists in the next minute. Without the
confidence the law would each time remove the replicas that the guard has just added.
"""

from dataclasses import replace
from typing import Final

from sluice_operator.autoscaler.state import AutoscalerState

LEAST: Final = 0.5  # half of the predicted capacity: from there on the guard decides, not the model
FALL: Final = 0.9  # factor per period with SLO misses: seven periods from 1 to 0.5
PERIOD: Final = 15.0  # seconds between two updates: half a window, so that each has new measurements
RISE: Final = 0.02  # per period with the SLO met under load: half an hour to recover from an error of a fifth


def follow(memory: AutoscalerState, missed: bool, kept: bool, now: float) -> AutoscalerState:
    """One update where one is due: down where the SLO is missed under load, up where it is met."""
    if not (missed or kept) or (memory.confidence_at <= now < memory.confidence_at + PERIOD):
        return memory
    confidence = max(LEAST, memory.confidence * FALL) if missed else min(1.0, memory.confidence + RISE)
    return memory if confidence == memory.confidence else replace(memory, confidence=confidence, confidence_at=now)

"""Confidence in the model: it falls while measurements are worse than predicted and rises again once they agree.

The reactive guard acts at once on measurements, and the confidence is its memory. The cause of the model's error (a
profile off by a fifth, another load on the machine, changed lengths) persists in the next minute. Without the
confidence the law would each time remove the replicas that the guard has just added.
"""

from dataclasses import replace
from typing import Final

from sluice_operator.autoscaler.values import Memory

LEAST: Final = 0.5  # half of the predicted capacity: from there on the guard decides, not the model
FALL: Final = 0.9  # factor per period with SLO misses: seven periods from 1 to 0.5
PERIOD: Final = 15.0  # seconds between two updates: half a window, so that each has new measurements
RISE: Final = 0.02  # per period with the SLO met under load: half an hour to recover from an error of a fifth


def follow(memory: Memory, missed: bool, kept: bool, now: float) -> Memory:
    """One update where one is due: down where the SLO is missed under load, up where it is met."""
    if not (missed or kept) or (memory.trust_at <= now < memory.trust_at + PERIOD):
        return memory
    trust = max(LEAST, memory.trust * FALL) if missed else min(1.0, memory.trust + RISE)
    return memory if trust == memory.trust else replace(memory, trust=trust, trust_at=now)

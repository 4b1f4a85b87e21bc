"""The state that a new operator takes over from its predecessor: learned estimates, no measurements.

Arrival statistics, request lengths and model confidence change over hours, and a restart must not cost a day of
learning. The measurements of the last half minute start anew. Nothing is scaled down before a whole stabilisation
window has been observed.
"""

import math
from typing import Final

from sluice_operator.autoscaler.replicas import model_confidence
from sluice_operator.autoscaler.signals import cold_start
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import ColdStart, ForecastStatus, Lengths
from sluice_perfmodel.arrival_stats import (
    DISPERSION_BOUNDS,
    PRIOR_SLOTS,
    VOLATILITY_LEAST,
    VOLATILITY_MOST,
    ArrivalStats,
)

WORTH: Final = 20.0  # weight of remembered lengths, in requests: a minute of real requests outweighs it
LONGEST: Final = 1e7  # tokens; a longer length is invalid


def restored_state(starts: tuple[tuple[str, ColdStart], ...], outlook: ForecastStatus | None) -> AutoscalerState:
    """A memory that starts with the learned estimates. Values outside their valid range are left out."""
    memory = AutoscalerState(
        starts=tuple((pod, start) for pod, start in starts if cold_start.is_sane(start))[-cold_start.KEPT :]
    )
    if outlook is None:
        return memory
    low, high = DISPERSION_BOUNDS
    arrivals = ArrivalStats()
    if low <= outlook.dispersion <= high and 0.0 <= outlook.volatility <= VOLATILITY_MOST:
        arrivals = ArrivalStats(outlook.dispersion, max(outlook.volatility, VOLATILITY_LEAST), 5.0 * PRIOR_SLOTS)
    return AutoscalerState(
        starts=memory.starts,
        before=arrivals,
        lengths=_lengths(outlook),
        confidence=outlook.confidence if model_confidence.LEAST <= outlook.confidence <= 1.0 else 1.0,
    )


def _lengths(outlook: ForecastStatus) -> Lengths:
    """Sums that give these mean lengths. `at` is infinity until the first update sets it."""
    output, prompt, cached = outlook.output_tokens, outlook.prompt_tokens, outlook.cached_tokens
    if not (1.0 <= output < LONGEST and 0.0 <= cached <= prompt < LONGEST):
        return Lengths()
    return Lengths(math.inf, WORTH, WORTH, WORTH * output, WORTH * prompt, WORTH * cached)

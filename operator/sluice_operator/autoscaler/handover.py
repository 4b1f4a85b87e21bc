"""The state that a new operator takes over from its predecessor: learned estimates, no measurements.

Arrival statistics, request lengths and model confidence change over hours, and a restart must not cost a day of
learning. The measurements of the last half minute start anew. Nothing is scaled down before a whole stabilization
window has been observed.
"""

import math

from sluice_operator.autoscaler.replicas.model_confidence import ConfidenceState
from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.arrival_history import ArrivalState
from sluice_operator.autoscaler.signals.cold_start import ColdStartState, is_valid_start
from sluice_operator.autoscaler.signals.lengths import Lengths
from sluice_operator.autoscaler.signals.state import SignalState
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import ColdStart, ForecastStatus
from sluice_perfmodel.arrival_stats import ArrivalStats
from sluice_perfmodel.settings import PERFMODEL


def restored_state(starts: tuple[tuple[str, ColdStart], ...], forecast: ForecastStatus | None) -> AutoscalerState:
    """A state that starts with the learned estimates. Values outside their valid range are left out."""
    valid = tuple((pod, start) for pod, start in starts if is_valid_start(start))
    cold_starts = ColdStartState(valid[-LAW.signals.cold_starts_kept :])
    if forecast is None:
        return AutoscalerState(signals=SignalState(cold_starts=cold_starts))
    signals = SignalState(
        cold_starts=cold_starts,
        arrivals=ArrivalState(prior=_arrivals(forecast)),
        lengths=_lengths(forecast),
    )
    return AutoscalerState(signals=signals, confidence=_confidence(forecast))


def _arrivals(forecast: ForecastStatus) -> ArrivalStats:
    low, high = PERFMODEL.arrivals.dispersion_bounds
    if not (low <= forecast.dispersion <= high and 0.0 <= forecast.volatility <= PERFMODEL.arrivals.most_volatility):
        return ArrivalStats()
    weight = LAW.signals.restored_prior_weight * PERFMODEL.arrivals.prior_slots
    return ArrivalStats(forecast.dispersion, max(forecast.volatility, PERFMODEL.arrivals.least_volatility), weight)


def _lengths(forecast: ForecastStatus) -> Lengths:
    """Sums that give these mean lengths. `at` is infinite until the first update sets it."""
    output, prompt, cached = forecast.output_tokens, forecast.prompt_tokens, forecast.cached_tokens
    longest, weight = LAW.signals.longest_request_tokens, LAW.signals.restored_requests
    if not (1.0 <= output < longest and 0.0 <= cached <= prompt < longest):
        return Lengths()
    return Lengths(math.inf, weight, weight, weight * output, weight * prompt, weight * cached)


def _confidence(forecast: ForecastStatus) -> ConfidenceState:
    valid = LAW.replicas.confidence_least <= forecast.confidence <= 1.0
    return ConfidenceState(forecast.confidence if valid else 1.0)

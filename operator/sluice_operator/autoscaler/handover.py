"""The state that a new operator takes over from its predecessor: learned estimates, no measurements.

Cold starts, request lengths and the count that the last quarter of an hour needed are kept, so that a restart removes no
replica that a recurring burst needs. The measurements start anew. Nothing is scaled down before a whole stabilization
window has been observed.
"""

import math

from sluice_operator.autoscaler.replicas.history import History
from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.cold_start import ColdStartState, is_valid_start
from sluice_operator.autoscaler.signals.lengths import Lengths
from sluice_operator.autoscaler.signals.state import SignalState
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import ColdStart, ForecastStatus


def restored_state(starts: tuple[tuple[str, ColdStart], ...], forecast: ForecastStatus | None) -> AutoscalerState:
    """A state that starts with the learned estimates. Values outside their valid range are left out."""
    valid = tuple((pod, start) for pod, start in starts if is_valid_start(start))
    cold_starts = ColdStartState(valid[-LAW.cold_starts_kept :])
    if forecast is None:
        return AutoscalerState(signals=SignalState(cold_starts=cold_starts))
    signals = SignalState(cold_starts=cold_starts, lengths=_lengths(forecast))
    return AutoscalerState(signals=signals, history=History(restored=max(0, forecast.remembered)))


def _lengths(forecast: ForecastStatus) -> Lengths:
    """Sums that give these mean lengths. `at` is infinite until the first update sets it."""
    output, prompt, cached = forecast.output_tokens, forecast.prompt_tokens, forecast.cached_tokens
    weight = LAW.least_requests
    if not (1.0 <= output < LAW.largest_value and 0.0 <= cached <= prompt < LAW.largest_value):
        return Lengths()
    return Lengths(math.inf, weight, weight, weight * output, weight * prompt, weight * cached)

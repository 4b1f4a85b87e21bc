"""The state that a new operator takes over from its predecessor: learned estimates, no measurements.

Cold starts, request lengths and the count that the last quarter of an hour needed are kept, so that a restart removes no
replica that a recurring burst needs. The measurements start anew. Nothing is scaled down before a whole stabilization
window has been observed.
"""

import math
from dataclasses import dataclass, replace

from sluice_operator.autoscaler.replicas.history import History
from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.cold_start import PHASES, ColdStartState, is_valid_start
from sluice_operator.autoscaler.signals.lengths import Lengths, mean_work
from sluice_operator.autoscaler.signals.state import SignalState
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import ColdStart


@dataclass(frozen=True, slots=True)
class Estimates:
    """What the autoscaler has learned, rounded so that it changes rarely. Tokens are means per request; 0: unknown."""

    cold_starts: tuple[tuple[str, ColdStart], ...] = ()  # (pod, duration of its start), newest last
    remembered: int = 0  # replicas that the last quarter of an hour needed
    output_tokens: float = 0.0
    prompt_tokens: float = 0.0
    cached_tokens: float = 0.0


def estimates_of(state: AutoscalerState, remembered: int) -> Estimates:
    """The estimates of a state and of its last decision, which knows how many replicas are remembered."""
    work = mean_work(state.signals.lengths)
    return Estimates(
        cold_starts=tuple((pod, _rounded(start)) for pod, start in state.signals.cold_starts.starts),
        remembered=remembered,
        output_tokens=_three_digits(work.output) if work else 0.0,
        prompt_tokens=_three_digits(work.uncached + work.cached) if work else 0.0,
        cached_tokens=_three_digits(work.cached) if work else 0.0,
    )


def restored_state(estimates: Estimates) -> AutoscalerState:
    """A state that starts with the learned estimates. Values outside their valid range are left out."""
    valid = tuple((pod, start) for pod, start in estimates.cold_starts if is_valid_start(start))
    cold_starts = ColdStartState(valid[-LAW.cold_starts_kept :])
    signals = SignalState(cold_starts=cold_starts, lengths=_lengths(estimates))
    return AutoscalerState(signals=signals, history=History(restored=max(0, estimates.remembered)))


def _lengths(estimates: Estimates) -> Lengths:
    """Sums that give these mean lengths. `at` is infinite until the first update sets it."""
    output, prompt, cached = estimates.output_tokens, estimates.prompt_tokens, estimates.cached_tokens
    weight = LAW.least_requests
    if not (1.0 <= output < LAW.largest_value and 0.0 <= cached <= prompt < LAW.largest_value):
        return Lengths()
    return Lengths(math.inf, weight, weight, weight * output, weight * prompt, weight * cached)


def _rounded(start: ColdStart) -> ColdStart:
    """The start with tenths of a second."""
    return replace(start, **{phase: round(getattr(start, phase), 1) for phase in PHASES})


def _three_digits(value: float) -> float:
    return float(f"{value:.3g}")

"""Confidence in the model: it falls while measurements are worse than predicted and rises again once they agree.

The reactive guard acts at once on measurements, and the confidence is its memory. The cause of the model's error (a
profile off by a fifth, another load on the machine, changed lengths) persists in the next minute. Without the
confidence the law would each time remove the replicas that the guard has just added.
"""

from dataclasses import dataclass

from sluice_operator.autoscaler.settings import LAW


@dataclass(frozen=True, slots=True)
class ConfidenceState:
    """The model confidence: at 0.5 the model is evaluated for twice the load."""

    value: float = 1.0  # 1 as long as measurements agree
    changed_at: float = 0.0


def update_confidence(state: ConfidenceState, contradicted: bool, confirmed: bool, now: float) -> ConfidenceState:
    """One update where one is due: down where the SLO is missed under load, up where it is met."""
    settings = LAW.replicas
    due = not state.changed_at <= now < state.changed_at + settings.confidence_period_seconds
    if not (contradicted or confirmed) or not due:
        return state
    if contradicted:
        value = max(settings.confidence_least, state.value * settings.confidence_fall)
    else:
        value = min(1.0, state.value + settings.confidence_rise)
    return state if value == state.value else ConfidenceState(value, now)

"""The autoscaler's estimates in the status, and their restoration when an operator starts."""

from collections.abc import Mapping
from typing import Any, Final

from sluice_operator.autoscaler.handover import restored_state
from sluice_operator.autoscaler.signals.cold_start import PHASES
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import ColdStart, ForecastStatus

_FORECAST: Final = (
    ("rate", "requestsPerSecond"),
    ("planned", "plannedRequestsPerSecond"),
    ("dispersion", "dispersion"),
    ("volatility", "volatility"),
    ("output_tokens", "outputTokens"),
    ("prompt_tokens", "promptTokens"),
    ("cached_tokens", "cachedPromptTokens"),
    ("confidence", "modelTrust"),
)


def phases(start: ColdStart) -> dict[str, float]:
    """Return the duration of each phase of a cold start in seconds."""
    return {phase: round(getattr(start, phase), 1) for phase in PHASES}


def forecast_fields(forecast: ForecastStatus) -> dict[str, float]:
    """Return the forecast in the format of `status.forecast`."""
    return {wire: float(f"{getattr(forecast, name):.4g}") for name, wire in _FORECAST}


def cold_starts_of(state: AutoscalerState) -> list[dict[str, Any]]:
    """Return the measured cold starts in the format of `status.coldStarts`."""
    return [{"pod": pod, **phases(start)} for pod, start in state.signals.cold_starts.starts]


def restored(status: Mapping[str, Any]) -> AutoscalerState:
    """Return the estimates of the previous operator process from its status, or an empty
    state if they do not parse."""
    try:
        starts = tuple(
            (str(entry["pod"]), ColdStart(*(float(entry[phase]) for phase in PHASES)))
            for entry in status.get("coldStarts") or ()
        )
        wire = status.get("forecast") or {}
        forecast = ForecastStatus(**{name: float(wire[key]) for name, key in _FORECAST}) if wire else None
    except (KeyError, TypeError, ValueError, AttributeError):
        return AutoscalerState()
    return restored_state(starts, forecast)

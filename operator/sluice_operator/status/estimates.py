"""The autoscaler's estimates in the status, and their restoration when an operator starts."""

from collections.abc import Mapping
from typing import Any, Final

from sluice_operator.autoscaler.handover import restored_state
from sluice_operator.autoscaler.signals.cold_start import PHASES
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import ColdStart, ForecastStatus

_UNREADABLE: Final = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


def phases(start: ColdStart) -> dict[str, float]:
    """Return the duration of each phase of a cold start in seconds."""
    return {phase: round(getattr(start, phase), 1) for phase in PHASES}


def forecast_fields(forecast: ForecastStatus) -> dict[str, float]:
    """Return the forecast in the format of `status.forecast`, with four significant digits. Unknown shares are omitted."""
    found = {
        "requestsPerSecond": forecast.rate,
        "growth": forecast.growth,
        "rememberedReplicas": forecast.remembered,
        "predictedAttainmentPercent": _percent(forecast.predicted),
        "attainmentPercent": _percent(forecast.attained),
        "modelError": forecast.model_error,
        "outputTokens": forecast.output_tokens,
        "promptTokens": forecast.prompt_tokens,
        "cachedPromptTokens": forecast.cached_tokens,
    }
    return {
        name: value if isinstance(value, int) else float(f"{value:.4g}")
        for name, value in found.items()
        if value is not None
    }


def cold_starts_of(state: AutoscalerState) -> list[dict[str, Any]]:
    """Return the measured cold starts in the format of `status.coldStarts`."""
    return [{"pod": pod, **phases(start)} for pod, start in state.signals.cold_starts.starts]


def restored(status: Mapping[str, Any]) -> AutoscalerState:
    """Return the estimates of the previous operator process from its status. A part that does not parse is left out: the
    forecast may be that of an older version."""
    try:
        starts = _starts_of(status)
    except _UNREADABLE:
        starts = ()
    try:
        wire = status.get("forecast") or {}
        forecast = _forecast_of(wire) if wire else None
    except _UNREADABLE:
        forecast = None
    return restored_state(starts, forecast)


def _starts_of(status: Mapping[str, Any]) -> tuple[tuple[str, ColdStart], ...]:
    return tuple(
        (str(entry["pod"]), ColdStart(*(float(entry[phase]) for phase in PHASES)))
        for entry in status.get("coldStarts") or ()
    )


def _forecast_of(wire: Mapping[str, Any]) -> ForecastStatus:
    return ForecastStatus(
        rate=float(wire["requestsPerSecond"]),
        growth=float(wire["growth"]),
        remembered=int(wire["rememberedReplicas"]),
        predicted=_share(wire.get("predictedAttainmentPercent")),
        attained=_share(wire.get("attainmentPercent")),
        model_error=float(wire["modelError"]),
        output_tokens=float(wire["outputTokens"]),
        prompt_tokens=float(wire["promptTokens"]),
        cached_tokens=float(wire["cachedPromptTokens"]),
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


def _share(percent: float | None) -> float | None:
    return None if percent is None else float(percent) / 100.0

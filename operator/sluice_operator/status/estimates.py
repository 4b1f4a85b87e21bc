"""The autoscaler's estimates in the format of the status."""

from sluice_operator.autoscaler.signals.cold_start import PHASES
from sluice_operator.autoscaler.values import ColdStart, ForecastStatus
from sluice_operator.status.decimal_text import decimal_text, rounded_text


def phases(start: ColdStart) -> dict[str, str]:
    """Return the duration of each phase of a cold start in seconds."""
    return {phase: rounded_text(getattr(start, phase), 1) for phase in PHASES}


def forecast_fields(forecast: ForecastStatus) -> dict[str, str]:
    """Return the forecast in the format of `status.forecast`, with four significant digits. Unknown shares are omitted."""
    found = {
        "requestsPerSecond": forecast.rate,
        "growth": forecast.growth,
        "predictedAttainmentPercent": _percent(forecast.predicted),
        "attainmentPercent": _percent(forecast.attained),
        "modelError": forecast.model_error,
    }
    return {name: decimal_text(value, 4) for name, value in found.items() if value is not None}


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share

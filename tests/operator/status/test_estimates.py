"""The forecast in the status: its format, and what a new operator reads back."""

from typing import Any

import pytest

from sluice_operator.api import LLMDeployment, parse
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import ColdStart, ForecastStatus
from sluice_operator.status import estimates
from sluice_operator.status.estimates import forecast_fields, restored
from tests.operator.fake_cluster import manifest

KNOWN = ForecastStatus(
    rate=21.0,
    growth=1.25,
    remembered=12345,
    predicted=0.9931,
    attained=0.986,
    model_error=1.12,
    output_tokens=200.0,
    prompt_tokens=812.5,
    cached_tokens=400.0,
)
UNKNOWN = ForecastStatus(21.0, 1.0, 1, None, None, 1.0)


def test_the_status_has_shares_in_percent_and_omits_unknown_ones() -> None:
    assert forecast_fields(KNOWN) == {
        "requestsPerSecond": 21.0,
        "growth": 1.25,
        "rememberedReplicas": 12345,
        "predictedAttainmentPercent": 99.31,
        "attainmentPercent": 98.6,
        "modelError": 1.12,
        "outputTokens": 200.0,
        "promptTokens": 812.5,
        "cachedPromptTokens": 400.0,
    }
    assert not {"predictedAttainmentPercent", "attainmentPercent"} & forecast_fields(UNKNOWN).keys()


@pytest.mark.parametrize("forecast", [KNOWN, UNKNOWN])
def test_the_forecast_is_valid_for_the_resource_and_is_read_back(
    monkeypatch: pytest.MonkeyPatch, forecast: ForecastStatus
) -> None:
    found: list[ForecastStatus | None] = []

    def keep(_: tuple[tuple[str, ColdStart], ...], read: ForecastStatus | None) -> AutoscalerState:
        found.append(read)
        return AutoscalerState()

    monkeypatch.setattr(estimates, "restored_state", keep)
    status: dict[str, Any] = {"forecast": forecast_fields(forecast), "decisions": [], "conditions": []}
    assert isinstance(parse(manifest() | {"status": status}, strict=True), LLMDeployment)
    restored(status)
    assert found == [forecast]


def test_a_number_of_replicas_without_bound_restores_nothing() -> None:
    wire = forecast_fields(KNOWN) | {"rememberedReplicas": float("inf")}
    assert restored({"forecast": wire}) == AutoscalerState()


def test_cold_starts_outlive_a_forecast_of_an_older_version() -> None:
    start = {"pod": "a", "schedule": 1.0, "pull": 2.0, "load": 3.0, "warm": 4.0, "total": 10.0}
    found = restored({"coldStarts": [start], "forecast": {"dispersion": 2.0, "modelTrust": 1.0}})
    assert found.signals.cold_starts.starts == (("a", ColdStart(1.0, 2.0, 3.0, 4.0, 10.0)),)
    assert restored({"coldStarts": [{"pod": "a"}], "forecast": forecast_fields(KNOWN)}).history.restored == 12345

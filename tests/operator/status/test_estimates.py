"""The forecast in the status: numbers as text, in percent, without what is unknown."""

import json

from sluice_operator.api import LLMDeploymentStatus
from sluice_operator.autoscaler.values import ForecastStatus
from sluice_operator.status.decimal_text import decimal_text, rounded_text
from sluice_operator.status.estimates import forecast_fields

KNOWN = ForecastStatus(rate=21.0, growth=1.25, remembered=12345, predicted=0.99312, attained=0.986, model_error=1.12)
UNKNOWN = ForecastStatus(21.0, 1.0, 1, None, None, 1.0)


def test_the_status_has_shares_in_percent_and_omits_unknown_ones() -> None:
    found = forecast_fields(KNOWN)
    assert found == {
        "requestsPerSecond": "21",
        "growth": "1.25",
        "predictedAttainmentPercent": "99.31",
        "attainmentPercent": "98.6",
        "modelError": "1.12",
    }
    LLMDeploymentStatus.model_validate_json(json.dumps({"forecast": found}))
    assert not {"predictedAttainmentPercent", "attainmentPercent"} & forecast_fields(UNKNOWN).keys()


def test_numbers_with_decimals_are_plain_text() -> None:
    assert [decimal_text(value, 4) for value in (0.0, 12345.6, 2e7, 0.00012345, -1.5)] == [
        "0", "12350", "20000000", "0.0001234", "-1.5",
    ]  # fmt: skip
    assert [rounded_text(value, 1) for value in (99.96, 40.0, 0.04)] == ["100", "40", "0"]

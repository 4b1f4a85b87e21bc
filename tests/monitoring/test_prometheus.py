"""Every query of the dashboards and rules, evaluated by a real Prometheus: each finds series."""

from collections.abc import Iterator

import pytest

from sluice.monitoring.alerts.rules import ALERTS
from sluice.monitoring.alerts.slo import RECORDINGS
from sluice.monitoring.dashboards import DASHBOARDS
from tests.monitoring.known import windows
from tests.monitoring.prometheus import END, Prometheus, past, running

QUERIES = [
    pytest.param(query.expression, id=f"{dashboard.uid}: {panel.title}: {query.legend}")
    for dashboard in DASHBOARDS
    for panel in dashboard.panels
    for query in panel.queries
]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with running(tmp_path_factory.mktemp("prometheus"), past()) as server:
        yield server


@pytest.mark.parametrize("expression", QUERIES)
def test_a_panel_has_data(prometheus: Prometheus, expression: str) -> None:
    found = prometheus.query(windows(expression))
    assert found
    assert all(each["value"][1] != "NaN" for each in found)


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda each: each.name)
def test_a_recording_rule_has_data(prometheus: Prometheus, recording: object) -> None:
    (found,) = prometheus.query(getattr(recording, "expression", ""))
    assert found["metric"] == {"namespace": "apps", "llmdeployment": "chat"}


@pytest.mark.parametrize("alert", ALERTS, ids=lambda each: each.name)
def test_an_alert_is_evaluated(prometheus: Prometheus, alert: object) -> None:
    """promtool shows when it fires; here only that the comparison is of one series with one series."""
    assert isinstance(prometheus.query(getattr(alert, "expression", "")), list)


def test_a_query_that_is_no_promql_fails(prometheus: Prometheus) -> None:
    with pytest.raises(AssertionError, match="parse error"):
        prometheus.query("sum(")
    assert prometheus.query("sluice_requests_running", at=END - 3600) == []

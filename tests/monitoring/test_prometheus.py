"""Every query of the dashboards and rules, evaluated by a real Prometheus: each finds series."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.monitoring.alerts.rules import ALERTS
from sluice.monitoring.alerts.slo import RECORDINGS
from sluice.monitoring.dashboards import DASHBOARDS
from tests.monitoring.known import windows
from tests.monitoring.on_cluster import Targets, configuration, targets
from tests.monitoring.picture import draw
from tests.monitoring.prometheus import END, START, Prometheus, past, running

CHART = Path(__file__).parents[2] / "charts/sluice/dashboards"

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


@pytest.mark.parametrize("uid", [dashboard.uid for dashboard in DASHBOARDS])
def test_a_picture_shows_data_in_each_panel(prometheus: Prometheus, uid: str, tmp_path: Path) -> None:
    counts = draw(CHART / f"{uid}.json", prometheus, START, END, tmp_path / "seen.png")
    assert counts
    assert {name for name, count in counts.items() if count == 0} == set()
    assert (tmp_path / "seen.png").read_bytes().startswith(b"\x89PNG")


def test_the_health_of_each_rule_is_read(tmp_path: Path) -> None:
    rules = "groups: [{name: a, rules: [{record: half, expr: 'up / 2'}, {alert: Down, expr: 'up == 0'}]}]"
    (tmp_path / "rules.yaml").write_text(rules)
    told = f"global: {{evaluation_interval: 1s}}\nrule_files: [{tmp_path / 'rules.yaml'}]\n"
    with running(tmp_path, past(), told) as server:
        assert server.rules().keys() == {"half", "Down"}
        assert set(server.rules().values()) <= {"ok", "unknown"}


POD = {
    "metadata": {
        "name": "chat-1",
        "namespace": "apps",
        "labels": {"app.kubernetes.io/name": "sluice-engine", "app.kubernetes.io/instance": "chat"},
    },
    "status": {"phase": "Running"},
}


def test_a_pod_of_a_cluster_becomes_a_target_with_the_labels_of_its_monitor() -> None:
    (target,) = targets([POD, POD | {"status": {"phase": "Pending"}}], "127.0.0.1:8001")["sluice-engine"]
    path = "/api/v1/namespaces/apps/pods/chat-1:8001/proxy/metrics"
    labels = {"namespace": "apps", "pod": "chat-1", "llmdeployment": "chat", "__metrics_path__": path}
    assert target == {"targets": ["127.0.0.1:8001"], "labels": labels}


def test_a_real_prometheus_reads_the_targets_of_a_cluster(tmp_path: Path) -> None:
    """There is no cluster behind the address, so the target is down, with the labels that it would have."""
    with running(tmp_path, "# EOF\n", configuration(tmp_path)) as server:
        written = Targets(tmp_path, "127.0.0.1:1", lambda: [POD])
        written.start()
        try:
            (up,) = server.wait("up", 1)
        finally:
            written.stop()
    assert up["metric"].items() >= {"job": "sluice-engine", "pod": "chat-1", "llmdeployment": "chat"}.items()
    assert up["value"][1] == "0"

"""Part 2, continued: a second release in the same namespace, an upgrade of the first one under load, and helm test.

A Prometheus that has read the release since the load of this part began shows it on the chart's dashboards.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.framework import jobs, previous_chart
from e2e.framework.cluster import Cluster, is_ready, name_of, run, say, wait_for
from e2e.framework.operator_pod import REPLICAS, Operator
from e2e.framework.settings import ROOT, Settings
from sluice.monitoring.alerts.rules import ALERTS
from tests.monitoring.picture import draw
from tests.monitoring.prometheus import Prometheus

TAKEOVER = 15.0  # seconds within which another operator leads after the leader was deleted: the Lease's duration
DELETIONS = 3  # of the Lease
DASHBOARDS = sorted((ROOT / "charts/sluice/dashboards").glob("*.json"))
PICTURES = ROOT / ".out/dashboards"
LOOK_BACK = 3600.0  # seconds; the part until here takes less
QUIET = {  # queries that this part may give no data: no request waits at a gateway, and no draft may be accepted
    "Time added by gateways, p99: queue",
    "Drafts accepted: accepted",
}


@pytest.fixture
def second(cluster: Cluster, operator: Operator, settings: Settings) -> Iterator[Operator]:
    """A second release in the namespace of the first one, which watches a namespace of its own."""
    watched = f"{settings.release}-watched"
    second = Operator(cluster, settings, name=f"{settings.release}-two")
    run("kubectl", "create", "namespace", watched)
    try:
        second.install(f"watchNamespace={watched}")
        yield second
    finally:
        second.uninstall()
        run("kubectl", "delete", "namespace", watched, "--wait=false")


def test_two_releases_in_one_namespace_both_lead(operator: Operator, second: Operator) -> None:
    wait_for("the second release leads", second.leads, timeout=30)
    assert operator.leads()
    assert second.restarts() == 0


@pytest.fixture
def earlier(operator: Operator, tmp_path: Path) -> None:
    """The release runs the previous version of the chart."""
    try:
        chart = previous_chart.extract(tmp_path)
    except previous_chart.NoHistory as error:
        pytest.skip(f"no earlier version of the chart: {error}")
    operator.upgrade(chart)
    wait_for("an operator of the previous chart leads", operator.leads, timeout=60)


def test_an_upgrade_from_the_previous_chart_under_load_changes_no_model(
    cluster: Cluster, operator: Operator, settings: Settings, earlier: None
) -> None:
    pods, deployment = engines(cluster), cluster.deployment("chat") or {}
    direct, routed = (
        jobs.start_client(cluster, name, settings.image("engine"), "chat", "--each", "2", url=url)
        for name, url in (("upgraded", ""), ("upgraded-routed", operator.gateway_url))
    )
    operator.upgrade()
    wait_for("an operator of this chart leads", operator.leads, timeout=60)
    operator.wait_for_passes(4)
    assert len(operator.pods()) == REPLICAS
    for client in (direct, routed):
        account = client.finish()
        assert account["failed"] == []
        assert account["requests"] >= 10
    after = cluster.deployment("chat") or {}
    assert after["spec"]["template"] == deployment["spec"]["template"]
    assert pods and pods <= engines(cluster)


def test_another_operator_leads_soon_after_the_leader_was_deleted(operator: Operator) -> None:
    leader = operator.leader()
    say(f"{leader} is deleted; the operators: {[name_of(pod) for pod in operator.pods()]}")
    run("kubectl", "-n", operator.namespace, "delete", "pod", leader, "--wait=false")
    wait_for("another operator leads", lambda: operator.leader() not in ("", leader), timeout=TAKEOVER, every=0.2)
    operator.wait_for_passes(1)
    wait_for("as many operators as before", lambda: sum(map(is_ready, operator.pods())) == REPLICAS, timeout=60)


def test_row_the_leader_makes_a_deleted_lease_anew_and_the_other_operator_never_leads_beside_it(
    operator: Operator,
) -> None:
    leader, seen = operator.leader(), list[list[str]]()

    def is_back() -> bool:
        seen.append(operator.leaders())
        return operator.holder() != "" and operator.leader() == leader

    for _ in range(DELETIONS):
        run("kubectl", "-n", operator.namespace, "delete", "lease", operator.release)
        wait_for("there is a Lease again", is_back, timeout=TAKEOVER, every=0.2)
        assert operator.holder() == leader
    operator.wait_for_passes(4)
    assert operator.leaders() == [leader]
    assert max(map(len, seen)) <= 1, seen


def test_helm_test_succeeds_and_leaves_no_pod(operator: Operator) -> None:
    assert "Succeeded" in operator.test()
    found = run(
        "kubectl", "-n", operator.namespace, "get", "pods", "-l", "app.kubernetes.io/name=sluice-test", "-o", "name"
    )
    assert found == ""


@pytest.fixture
def read(prometheus: Prometheus | None) -> Prometheus:
    """The Prometheus that has read the release."""
    if prometheus is None:
        pytest.skip("Prometheus is not installed")
    return prometheus


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.stem)
def test_each_panel_shows_what_the_cluster_did(read: Prometheus, dashboard: Path) -> None:
    now = time.time()
    began = min(at for one in read.query_range("up", now - LOOK_BACK, now, 15.0) for at, _ in one.points)
    PICTURES.mkdir(parents=True, exist_ok=True)
    picture = PICTURES / f"{dashboard.stem}.png"
    counts = draw(dashboard, read, began, now, picture)
    say(f"{picture.relative_to(ROOT)}: {len(counts)} queries over {(now - began) / 60:.0f} minutes")
    assert {name for name, count in counts.items() if count == 0} <= QUIET


def test_each_alert_and_recording_rule_of_the_chart_is_evaluated(read: Prometheus) -> None:
    health = read.rules()
    assert health.keys() >= {alert.name for alert in ALERTS}
    assert {name: said for name, said in health.items() if said != "ok"} == {}


def engines(cluster: Cluster) -> set[str]:
    """The uid of each of chat's pods that serve."""
    return {str(pod["metadata"]["uid"]) for pod in cluster.pods("chat") if is_ready(pod)}

"""The PodMonitor as a child: only where the cluster has the kind, restored, removed, and never in the way of scaling."""

from dataclasses import replace

import pytest

from sluice import contract
from sluice_operator.cluster.client import ClusterError, Object
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.settings import InvalidSettings, PodMonitorSettings, from_environment
from tests.foreign_schemas import faults
from tests.operator.fake_cluster import KEY, Clock, FakeCluster, cluster_with, manifest, operator

SETTINGS = PodMonitorSettings(labels=(("release", "prometheus"),), interval_seconds=30)
NAME = "chat-engine"


def operator_with(settings: PodMonitorSettings | None, cluster: FakeCluster, clock: Clock | None = None) -> Reconciler:
    context = operator(cluster, clock=clock).context
    return Reconciler(replace(context, settings=replace(context.settings, pod_monitor=settings)))


def monitored_cluster() -> FakeCluster:
    cluster = cluster_with()
    cluster.optional_kinds.add("PodMonitor")
    return cluster


def monitor(cluster: FakeCluster) -> Object:
    return cluster.store.get("PodMonitor", KEY.namespace, NAME) or {}


async def test_a_cluster_without_the_kind_gets_none_until_it_has_it() -> None:
    cluster, clock = cluster_with(), Clock()
    reconciler = operator_with(SETTINGS, cluster, clock)
    await reconciler.reconcile(KEY)
    assert monitor(cluster) == {}
    cluster.optional_kinds.add("PodMonitor")
    clock.now += 5.0
    await reconciler.reconcile(KEY)
    assert monitor(cluster) != {}


async def test_prometheus_finds_the_admin_port_by_the_labels_of_the_pods() -> None:
    cluster = monitored_cluster()
    await operator_with(SETTINGS, cluster).reconcile(KEY)
    made, template = monitor(cluster), cluster.deployment["spec"]["template"]
    assert made["metadata"]["labels"]["release"] == "prometheus"
    assert made["metadata"]["ownerReferences"][0]["name"] == KEY.name
    assert made["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    (endpoint,) = made["spec"]["podMetricsEndpoints"]
    ports = {port["name"]: port["containerPort"] for port in template["spec"]["containers"][0]["ports"]}
    assert ports[endpoint["port"]] == contract.ADMIN_PORT
    assert (endpoint["path"], endpoint["interval"], endpoint["scrapeTimeout"]) == (contract.PATH_METRICS, "30s", "10s")
    assert endpoint["relabelings"][0]["targetLabel"] == contract.SERIES_LABEL


async def test_the_monitor_is_valid_by_the_schema_of_the_prometheus_operator() -> None:
    cluster = monitored_cluster()
    await operator_with(SETTINGS, cluster).reconcile(KEY)
    made = {name: monitor(cluster)[name] for name in ("apiVersion", "kind", "metadata", "spec")}
    assert faults(made, "podmonitors") == []
    made["spec"]["podMetricsEndpoints"][0]["intervall"] = "5s"
    assert len(faults(made, "podmonitors")) == 1


async def test_where_monitors_may_not_be_listed_it_is_applied_once_and_restored_after_hours() -> None:
    cluster, clock = monitored_cluster(), Clock()
    reconciler = operator_with(SETTINGS, cluster, clock)
    for _ in range(3):
        await reconciler.reconcile(KEY)
        clock.now += 15.0
    assert cluster.writes.count(f"apply PodMonitor {NAME}") == 1
    cluster.store.delete("PodMonitor", KEY.namespace, NAME)
    clock.now += reconciler.context.settings.monitor_interval
    await reconciler.reconcile(KEY)
    assert monitor(cluster) != {}


async def test_where_monitors_are_listed_it_is_restored_by_the_next_pass() -> None:
    class Listed(FakeCluster):
        """The cache holds PodMonitors."""

        def holds(self, kind: str) -> bool:
            return True

    cluster = Listed()
    cluster.store.apply(manifest())
    cluster.optional_kinds.add("PodMonitor")
    reconciler = operator_with(SETTINGS, cluster)
    await reconciler.reconcile(KEY)
    before = monitor(cluster)["spec"]
    changes: list[Object | None] = [{"spec": {"podMetricsEndpoints": []}}, None]
    for change in changes:
        if change is None:
            cluster.store.delete("PodMonitor", KEY.namespace, NAME)
        else:
            cluster.store.apply(monitor(cluster) | change)
        await reconciler.reconcile(KEY)
        assert monitor(cluster)["spec"] == before


async def test_an_operator_without_monitors_removes_the_one_of_its_predecessor_once() -> None:
    cluster = monitored_cluster()
    await operator_with(SETTINGS, cluster).reconcile(KEY)
    successor = operator_with(None, cluster)
    for _ in range(2):
        await successor.reconcile(KEY)
    assert cluster.writes.count(f"delete PodMonitor {NAME}") == 1


async def test_a_users_monitor_of_that_name_is_neither_changed_nor_removed() -> None:
    cluster = monitored_cluster()
    metadata = {"name": NAME, "namespace": KEY.namespace}
    cluster.store.apply(
        {"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor", "metadata": metadata, "spec": {}}
    )
    for settings in (SETTINGS, None):
        await operator_with(settings, cluster).reconcile(KEY)
    assert monitor(cluster)["spec"] == {}
    assert not any("PodMonitor" in what for what in cluster.writes)


async def test_a_refused_monitor_is_logged_once_and_the_pass_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(FakeCluster):
        async def apply(self, manifest: Object, *, owner: Object | None = None) -> Object:
            if manifest["kind"] == "PodMonitor":
                raise ClusterError("PATCH podmonitors: 403 forbidden", status=403)
            return await super().apply(manifest, owner=owner)

    cluster, clock = Refusing(optional_kinds={"PodMonitor"}), Clock()
    cluster.store.apply(cluster_with().resource)
    reconciler = operator_with(SETTINGS, cluster, clock)
    for _ in range(3):
        await reconciler.reconcile(KEY)
        clock.now += 60.0
    assert [each.getMessage() for each in caplog.records if "PodMonitor" in each.getMessage()] == [
        "no PodMonitor for ns/chat: PATCH podmonitors: 403 forbidden"
    ]
    assert cluster.deployment and cluster.status


@pytest.mark.parametrize(
    "wrong",
    [
        "{",
        "[]",
        '{"labels": {}}',
        '{"labels": {"a": 1}, "intervalSeconds": 15}',
        '{"labels": {}, "intervalSeconds": 0}',
    ],
)
def test_a_wrong_setting_is_refused_with_an_example(wrong: str) -> None:
    with pytest.raises(InvalidSettings, match=r"SLUICE_POD_MONITOR is .* it must be JSON such as"):
        from_environment({"SLUICE_POD_MONITOR": wrong})

"""One pass after another over a cluster in books: what is written, and in which order."""

from sluice import contract
from sluice_operator.api import parse
from sluice_operator.autoscaler.values import Decision
from sluice_operator.reconcile.children.apply import order_scale_in
from sluice_operator.reconcile.observe import observe
from sluice_operator.reconcile.reconciler import GONE
from tests.operator.fake_cluster import KEY, Clock, Engines, cluster_with, deployed, manifest, operator, pod, settle


async def test_the_first_pass_makes_every_child_and_the_whole_status() -> None:
    cluster = cluster_with()
    assert await operator(cluster).reconcile(KEY) == 5.0
    assert cluster.deployment["spec"]["replicas"] == 1
    assert {c["type"] for c in cluster.status["conditions"]} == {
        "Ready", "Available", "Progressing", "ModelLoaded", "ScalingActive", "AdmissionActive", "MetricsAvailable", "SLOMet", "Paused",
        "UpgradeAvailable",
    }  # fmt: skip
    assert cluster.status["url"] == "http://chat.ns.svc:8000/v1"
    assert (cluster.status["readyReplicas"], cluster.status["desiredReplicas"]) == (0, 1)
    assert [d["reason"] for d in cluster.status["decisions"]] == ["MinReplicas"]


async def test_the_deployment_is_written_after_what_its_pods_need_and_before_the_status() -> None:
    cluster = cluster_with()
    await operator(cluster).reconcile(KEY)
    order = [what.split()[1] if " " in what else what for what in cluster.writes]
    assert order.index("Secret") < order.index("ServiceAccount") < order.index("Deployment") < order.index("status")


async def test_a_settled_resource_is_not_written_again() -> None:
    cluster, clock = cluster_with(), Clock()
    cluster.pods = [pod("a")]
    reconciler = operator(cluster, clock=clock)
    for _ in range(3):
        await reconciler.reconcile(KEY)
    cluster.writes.clear()
    await reconciler.reconcile(KEY)
    assert [what for what in cluster.writes if not what.startswith("apply Deployment")] == []


async def test_paused_writes_nothing_but_the_status() -> None:
    cluster = cluster_with()
    await settle(cluster)
    cluster.edit(paused=True, scaling={"minReplicas": 3, "maxReplicas": 4})
    cluster.writes.clear()
    await settle(cluster)
    assert {what.split()[0] for what in cluster.writes} <= {"status", "event"}
    assert cluster.condition("Paused")["status"] == "True"


async def test_external_mode_copies_the_scale_subresource() -> None:
    cluster = cluster_with(manifest(replicas=3, scaling={"mode": "External", "minReplicas": 1, "maxReplicas": 4}))
    await settle(cluster)
    assert cluster.deployment["spec"]["replicas"] == 3


async def test_advise_sets_an_initial_count_and_then_leaves_the_field_out() -> None:
    cluster = cluster_with(manifest(scaling={"mode": "Advise", "minReplicas": 2, "maxReplicas": 4}))
    reconciler = operator(cluster)
    await reconciler.reconcile(KEY)
    assert cluster.deployment["spec"]["replicas"] == 2
    await reconciler.reconcile(KEY)
    assert "replicas" not in cluster.deployment["spec"]


async def test_deletion_costs_are_written_before_a_smaller_replica_count() -> None:
    cluster, clock = cluster_with(manifest(scaling={"minReplicas": 3, "maxReplicas": 4})), Clock()
    reconciler = operator(cluster, clock=clock)
    await reconciler.reconcile(KEY)
    cluster.pods = [pod("a"), pod("b"), pod("c")]
    await reconciler.reconcile(KEY)
    cluster.edit(scaling={"minReplicas": 1, "maxReplicas": 2})
    cluster.writes.clear()
    await reconciler.reconcile(KEY)
    costs = [what for what in cluster.writes if what.startswith("apply Pod ")]
    assert costs
    assert cluster.writes.index(costs[-1]) < cluster.writes.index("apply Deployment chat")
    assert cluster.deployment["spec"]["replicas"] < 3


async def test_limits_go_to_every_ready_engine_with_the_token() -> None:
    engines = Engines()
    cluster = deployed(cluster_with(), pod("a"), pod("b", ready=False, conditions=[]))
    await operator(cluster, engines).reconcile(KEY)
    assert [name for name, _, _ in engines.patched] == ["a"]


async def test_the_state_of_a_deleted_resource_is_dropped() -> None:
    cluster = cluster_with()
    reconciler = operator(cluster)
    await reconciler.reconcile(KEY)
    cluster.store.delete(contract.KIND, KEY.namespace, KEY.name)
    assert await reconciler.reconcile(KEY) == GONE
    assert not reconciler.states and not reconciler.decisions


async def test_a_recreated_resource_starts_with_a_new_state() -> None:
    cluster = cluster_with()
    reconciler = operator(cluster)
    await reconciler.reconcile(KEY)
    before = reconciler.states[KEY]
    cluster.store.delete(contract.KIND, KEY.namespace, KEY.name)  # and no pass ran in between
    cluster.store.apply(manifest())
    await reconciler.reconcile(KEY)
    assert before.uid and reconciler.states[KEY].uid not in ("", before.uid)


async def test_the_deletion_cost_of_a_pod_that_stays_is_reset_once_the_scale_in_is_carried_out() -> None:
    cluster = cluster_with()
    cluster.pods = [pod("a"), pod("b"), pod("c")]
    reconciler, cost = operator(cluster), "controller.kubernetes.io/pod-deletion-cost"
    await reconciler.reconcile(KEY)
    document = await cluster.get(contract.KIND, KEY.namespace, KEY.name)
    assert document is not None
    resource = parse(document)
    cluster.pods[0]["metadata"]["annotations"] = {cost: "-1"}

    async def costs() -> list[int]:
        """The costs of the pods after a decision that keeps two."""
        fleet, _ = await observe(cluster.resource, reconciler.states[KEY].observation, reconciler.context)
        await order_scale_in(resource, fleet, Decision(replicas=2, desired=2), 2, reconciler.context)
        return [int((each["metadata"].get("annotations") or {}).get(cost, 0)) for each in cluster.pods]

    assert await costs() == [-1, 0, 0], "the controller has not removed a pod yet"
    cluster.pods.pop()
    cluster.writes.clear()
    assert await costs() == await costs() == [0, 0]
    assert cluster.writes == ["apply Pod a"]

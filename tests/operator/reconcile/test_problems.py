"""What others do wrong (other writers, bad specs, engines that crash, a server that refuses): said, and got over."""

import itertools
from typing import Any

import pytest

from sluice_operator.cluster.client import ClusterError, Object
from tests.operator.fake_cluster import KEY, Clock, Engines, cluster_with, manifest, operator, pod, settle


async def test_a_foreign_object_is_named_and_not_changed() -> None:
    cluster = cluster_with()
    foreign = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "chat", "namespace": "ns"}}
    cluster.store.create(foreign | {"spec": {"replicas": 7}})
    await settle(cluster, passes=2)
    assert cluster.deployment["spec"] == {"replicas": 7}
    assert cluster.condition("Ready")["reason"] == "Conflict"


async def test_the_younger_of_two_resources_with_one_served_name_gets_no_children() -> None:
    cluster = cluster_with(manifest(model={"uri": "pvc://models/tiny", "servedName": "llama"}))
    elder = manifest(model={"uri": "pvc://models/tiny", "servedName": "llama"})
    elder["metadata"]["name"] = "aaa"
    cluster.store.apply(elder)
    await settle(cluster, passes=1)
    assert "aaa already serves the name 'llama'" in cluster.condition("Ready")["message"]
    assert cluster.deployment == {}


async def test_an_invalid_spec_is_reported_and_running_children_stay() -> None:
    cluster = cluster_with()
    cluster.pods = [pod("a")]
    await settle(cluster)
    before = cluster.deployment
    cluster.edit(scaling={"minReplicas": 5, "maxReplicas": 2})
    await settle(cluster)
    assert cluster.deployment["spec"] == before["spec"]
    assert cluster.condition("Available")["status"] == "True"
    assert (cluster.condition("Ready")["status"], cluster.condition("Ready")["reason"]) == ("False", "InvalidSpec")
    assert cluster.condition("Progressing")["reason"] == "InvalidSpec"


CRASHED: dict[str, Any] = {
    "phase": "Running",
    "containerStatuses": [
        {
            "name": "engine",
            "restartCount": 2,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {
                "terminated": {
                    "exitCode": 78,
                    "message": '{"reason": "ModelNotFound", "message": "/models/tiny is not there."}',
                }
            },
        }
    ],
}


async def test_a_missing_model_is_retried_with_backoff_until_it_loads() -> None:
    cluster, clock = cluster_with(), Clock()
    reconciler = operator(cluster, clock=clock)
    deletions = []
    for number in range(60):
        cluster.pods = cluster.pods or [pod(f"a{number}", ready=False, **CRASHED)]
        await reconciler.reconcile(KEY)
        if not cluster.pods:
            deletions.append(clock.now)
        clock.now += 5
    assert cluster.condition("Ready")["reason"] == "ModelNotFound"
    assert "/models/tiny is not there." in cluster.condition("Ready")["message"]
    gaps = [b - a for a, b in itertools.pairwise(deletions)]
    assert gaps and gaps == sorted(gaps) and gaps[-1] > gaps[0]
    cluster.pods = [
        pod("fresh", ready=False, conditions=[], containerStatuses=[{"name": "engine", "state": {"running": {}}}])
    ]
    await reconciler.reconcile(KEY)
    assert cluster.condition("Ready")["reason"] == "ModelNotFound"  # it has proved nothing yet
    cluster.pods = [pod("fresh")]
    await reconciler.reconcile(KEY)
    assert cluster.condition("Ready")["status"] == "True"


async def test_silent_engines_are_stale_metrics_and_no_error() -> None:
    cluster, engines, clock = cluster_with(), Engines(text=None), Clock()
    cluster.pods = [pod("a")]
    reconciler = operator(cluster, engines, clock)
    for _ in range(10):
        await reconciler.reconcile(KEY)
        clock.now += 5
    assert cluster.condition("MetricsAvailable")["reason"] == "MetricsStale"
    assert cluster.condition("Ready")["status"] == "True"


async def test_another_writers_count_is_reported_once_by_name() -> None:
    cluster = cluster_with()
    reconciler = operator(cluster)
    await reconciler.reconcile(KEY)
    live = cluster.deployment
    live["spec"]["replicas"] = 2
    live["metadata"]["managedFields"] = [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]
    cluster.store.delete("Deployment", "ns", "chat")
    cluster.store.insert(live, cluster.resource)
    for _ in range(3):
        await reconciler.reconcile(KEY)
    told = [message for reason, message, _ in cluster.events if reason == "OtherWriter"]
    assert len(told) == 1
    assert "1 → 2 replicas: 'kubectl' changed the Deployment's replicas." in told[0]


async def test_a_rejected_write_is_in_the_status_and_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_with()
    allowed = cluster.apply

    async def refuses_services(manifest: Object, *, owner: Object | None = None) -> Object:
        if manifest["kind"] == "Service":
            raise ClusterError("Service ns/chat: forbidden by policy", status=403)
        return await allowed(manifest, owner=owner)

    reconciler = operator(cluster)
    monkeypatch.setattr(cluster, "apply", refuses_services)
    for _ in range(3):
        with pytest.raises(ClusterError):
            await reconciler.reconcile(KEY)
    ready = cluster.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "WriteRefused")
    assert "forbidden by policy" in ready["message"] and "the operator retries" in ready["message"]
    monkeypatch.undo()
    await reconciler.reconcile(KEY)
    assert cluster.condition("Ready")["reason"] != "WriteRefused"


async def test_pods_rejected_by_a_quota_are_reported() -> None:
    cluster = cluster_with()
    reconciler = operator(cluster)
    await reconciler.reconcile(KEY)
    words = 'pods "chat-1" is forbidden: exceeded quota'
    failure = {"type": "ReplicaFailure", "status": "True", "message": words}
    cluster.store.set_status("Deployment", KEY.namespace, KEY.name, {"conditions": [failure]})
    await reconciler.reconcile(KEY)
    assert cluster.condition("Ready")["reason"] == "PodsRefused"
    assert words in cluster.condition("Ready")["message"]


async def test_an_evicted_pod_is_not_counted_while_others_exist() -> None:
    cluster = cluster_with()
    cluster.pods = [pod("a"), pod("evicted", ready=False, phase="Failed", reason="Evicted")]
    reconciler = operator(cluster)
    await reconciler.reconcile(KEY)
    await reconciler.reconcile(KEY)
    assert cluster.status["replicas"] == 1
    assert cluster.condition("Progressing")["reason"] != "Evicted"

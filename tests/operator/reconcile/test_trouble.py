"""What others do wrong (other writers, bad specs, engines that crash, a server that refuses): said, and got over."""

import itertools
from typing import Any

import pytest

from sluice_operator.cluster.client import Object, WorldError
from sluice_operator.reconcile.reconcile import reconcile
from tests.operator.books import KEY, Clock, Engines, manifest, operator, pod, settle, world_with


async def test_a_foreign_object_is_left_alone_and_named() -> None:
    world = world_with()
    foreign = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "chat", "namespace": "ns"}}
    world.store.create(foreign | {"spec": {"replicas": 7}})
    await settle(world, passes=2)
    assert world.deployment["spec"] == {"replicas": 7}
    assert world.condition("Ready")["reason"] == "Conflict"
    assert world.status["reason"] == "Conflict"


async def test_the_younger_of_two_with_one_served_name_gets_nothing() -> None:
    world = world_with(manifest(model={"uri": "pvc://models/tiny", "servedName": "llama"}))
    elder = manifest(model={"uri": "pvc://models/tiny", "servedName": "llama"})
    elder["metadata"]["name"] = "aaa"
    world.store.apply(elder)
    await settle(world, passes=1)
    assert "aaa already serves the name 'llama'" in world.condition("Ready")["message"]
    assert world.deployment == {}


async def test_an_invalid_spec_is_said_and_running_children_stay() -> None:
    world = world_with()
    world.pods = [pod("a")]
    await settle(world)
    before = world.deployment
    world.edit(scaling={"minReplicas": 5, "maxReplicas": 2})
    await settle(world)
    assert world.deployment["spec"] == before["spec"]
    assert world.condition("Available")["status"] == "True"
    assert (world.condition("Ready")["status"], world.condition("Ready")["reason"]) == ("False", "InvalidSpec")
    assert world.condition("Progressing")["reason"] == "InvalidSpec"
    assert world.status["reason"] == "InvalidSpec"


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


async def test_a_missing_model_is_retried_ever_more_slowly_and_heals() -> None:
    world, clock = world_with(), Clock()
    context = operator(world, clock=clock)
    deletions = []
    for number in range(60):
        world.pods = world.pods or [pod(f"a{number}", ready=False, **CRASHED)]
        await reconcile(KEY, context)
        if not world.pods:
            deletions.append(clock.now)
        clock.now += 5
    assert world.condition("Ready")["reason"] == "ModelNotFound"
    assert "/models/tiny is not there." in world.condition("Ready")["message"]
    gaps = [b - a for a, b in itertools.pairwise(deletions)]
    assert gaps and gaps == sorted(gaps) and gaps[-1] > gaps[0]
    world.pods = [
        pod("fresh", ready=False, conditions=[], containerStatuses=[{"name": "engine", "state": {"running": {}}}])
    ]
    await reconcile(KEY, context)
    assert world.condition("Ready")["reason"] == "ModelNotFound"  # it has proved nothing yet
    world.pods = [pod("fresh")]
    await reconcile(KEY, context)
    assert world.condition("Ready")["status"] == "True"


async def test_silent_engines_are_stale_metrics_and_no_error() -> None:
    world, engines, clock = world_with(), Engines(text=None), Clock()
    world.pods = [pod("a")]
    context = operator(world, engines, clock)
    for _ in range(10):
        await reconcile(KEY, context)
        clock.now += 5
    assert world.condition("MetricsAvailable")["reason"] == "MetricsStale"
    assert world.condition("Ready")["status"] == "True"


async def test_another_writers_count_is_reported_once_by_name() -> None:
    world = world_with()
    context = operator(world)
    await reconcile(KEY, context)
    live = world.deployment
    live["spec"]["replicas"] = 2
    live["metadata"]["managedFields"] = [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]
    world.store.delete("Deployment", "ns", "chat")
    world.store.insert(live, world.resource)
    for _ in range(3):
        await reconcile(KEY, context)
    told = [message for reason, message, _ in world.events if reason == "OtherWriter"]
    assert len(told) == 1
    assert "1 → 2 replicas: 'kubectl' changed the Deployment's replicas." in told[0]


async def test_a_refused_write_is_said_in_the_status_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_with()
    allowed = world.apply

    async def refuses_services(manifest: Object, *, owner: Object | None = None) -> Object:
        if manifest["kind"] == "Service":
            raise WorldError("Service ns/chat: forbidden by policy", status=403)
        return await allowed(manifest, owner=owner)

    context = operator(world)
    monkeypatch.setattr(world, "apply", refuses_services)
    for _ in range(3):
        with pytest.raises(WorldError):
            await reconcile(KEY, context)
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "WriteRefused")
    assert "forbidden by policy" in ready["message"] and "tried again" in ready["message"]
    monkeypatch.undo()
    await reconcile(KEY, context)
    assert world.condition("Ready")["reason"] != "WriteRefused"


async def test_pods_that_a_quota_refuses_are_said() -> None:
    world = world_with()
    context = operator(world)
    await reconcile(KEY, context)
    words = 'pods "chat-1" is forbidden: exceeded quota'
    failure = {"type": "ReplicaFailure", "status": "True", "message": words}
    world.store.set_status("Deployment", KEY.namespace, KEY.name, {"conditions": [failure]})
    await reconcile(KEY, context)
    assert world.condition("Ready")["reason"] == "PodsRefused"
    assert words in world.condition("Ready")["message"]


async def test_an_evicted_pod_is_not_counted_while_others_live() -> None:
    world = world_with()
    world.pods = [pod("a"), pod("evicted", ready=False, phase="Failed", reason="Evicted")]
    context = operator(world)
    await reconcile(KEY, context)
    await reconcile(KEY, context)
    assert world.status["replicas"] == 1
    assert world.condition("Progressing")["reason"] != "Evicted"

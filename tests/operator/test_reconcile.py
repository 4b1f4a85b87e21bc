"""One pass after another over a world in books: what is written, in which order, and what a killed one leaves."""

import copy
import itertools
import json
from dataclasses import replace
from typing import Any

import pytest

from sluice import contract
from sluice_operator.api import LLMDeploymentStatus
from sluice_operator.crd import structural_schema
from sluice_operator.reconcile import GONE, reconcile
from sluice_operator.world import Object, WorldError
from tests.operator.books import KEY, BookWorld, Clock, Engines, Killed, exposition, manifest, operator, pod, world_with


async def settle(world: BookWorld, clock: Clock | None = None, passes: int = 4) -> None:
    context = operator(world, clock=clock)
    for _ in range(passes):
        await reconcile(KEY, context)


async def test_the_first_pass_makes_every_child_and_the_whole_status() -> None:
    world = world_with()
    assert await reconcile(KEY, operator(world)) == 5.0
    assert world.deployment["spec"]["replicas"] == 1
    assert {c["type"] for c in world.status["conditions"]} == {
        "Ready", "Available", "Progressing", "ModelLoaded", "ScalingActive", "MetricsAvailable", "SLOMet", "Paused",
    }  # fmt: skip
    assert world.status["url"] == "http://chat.ns.svc:8000/v1"
    assert world.status["replicasSummary"] == "0/1"
    assert [d["reason"] for d in world.status["decisions"]] == ["MinReplicas"]


async def test_the_status_is_one_the_schema_knows() -> None:
    world = world_with()
    world.pods = [pod("a")]
    await settle(world)
    LLMDeploymentStatus.model_validate_json(json.dumps(world.status))


async def test_the_deployment_is_written_after_what_its_pods_need_and_before_the_status() -> None:
    world = world_with()
    await reconcile(KEY, operator(world))
    order = [what.split()[1] if " " in what else what for what in world.writes]
    assert order.index("Secret") < order.index("ServiceAccount") < order.index("Deployment") < order.index("status")


async def test_a_settled_resource_is_not_written_again() -> None:
    world, clock = world_with(), Clock()
    world.pods = [pod("a")]
    context = operator(world, clock=clock)
    for _ in range(3):
        await reconcile(KEY, context)
    world.writes.clear()
    await reconcile(KEY, context)
    assert [what for what in world.writes if not what.startswith("apply Deployment")] == []


async def test_the_admin_token_is_made_once_and_read_back_by_a_successor() -> None:
    world, engines = world_with(), Engines()
    world.pods = [pod("a")]
    await reconcile(KEY, operator(world, engines))
    await reconcile(KEY, operator(world, engines))
    assert world.writes.count("create Secret") == 1
    assert len({token for _, token, _ in engines.patched}) == 1


def bare(world: BookWorld) -> dict[str, Any]:
    """The final state without what differs between any two runs: versions, uids, times, the token and the history."""

    def strip(item: Object) -> Object:
        item = copy.deepcopy(item)
        for field in ("resourceVersion", "uid", "creationTimestamp", "ownerReferences", "managedFields"):
            item["metadata"].pop(field, None)
        item.pop("data", None)
        status = item.pop("status", {})
        status.pop("decisions", None)
        for condition in status.get("conditions", []):
            condition.pop("lastTransitionTime")
        return item | {"status": status}

    kinds = ("Deployment", "Service", "ServiceAccount", "PodDisruptionBudget", "Secret", contract.KIND)
    return {kind: [strip(item) for item in world.store.list_all(kind)] for kind in kinds}


async def story(world: BookWorld) -> None:
    """Created, then asked for more."""
    await settle(world)
    world.edit(scaling={"minReplicas": 3, "maxReplicas": 4})
    await settle(world)


async def test_killed_after_any_write_a_successor_ends_in_the_same_state() -> None:
    undisturbed = world_with()
    await story(undisturbed)
    wanted = bare(undisturbed)
    for k in range(1, len(undisturbed.writes) + 1):
        world = world_with()
        world.kill_after = k
        edited = False
        try:
            await settle(world)
            world.edit(scaling={"minReplicas": 3, "maxReplicas": 4})
            edited = True
            await settle(world)
        except Killed:
            world.kill_after = None
        if not edited:
            await settle(world)
            world.edit(scaling={"minReplicas": 3, "maxReplicas": 4})
        await settle(world)
        assert bare(world) == wanted, f"killed after write {k}: {world.writes[k - 1]}"
        replicas = [d["to"] for d in world.status["decisions"] if d["kind"] == "replicas"]
        assert replicas[-1] == 3


async def test_a_decision_cut_off_from_its_record_is_recorded_by_the_successor() -> None:
    world = world_with()
    await settle(world)
    world.edit(scaling={"minReplicas": 3, "maxReplicas": 4})
    context = operator(world)
    world.writes.clear()
    world.kill_after = 1 + 5  # Secret is known; SA, two Services, PDB, Deployment
    with pytest.raises(Killed):
        for _ in range(3):
            await reconcile(KEY, context)
    world.kill_after = None
    assert world.deployment["spec"]["replicas"] == 3
    await settle(world)
    last = [d for d in world.status["decisions"] if d["kind"] == "replicas"][-1]
    assert (last["from"], last["to"]) == (1, 3)


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
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("Progressing")["reason"] == "InvalidSpec"
    assert world.status["reason"] == "InvalidSpec"


async def test_paused_writes_nothing_but_the_status() -> None:
    world = world_with()
    await settle(world)
    world.edit(paused=True, scaling={"minReplicas": 3, "maxReplicas": 4})
    world.writes.clear()
    await settle(world)
    assert {what.split()[0] for what in world.writes} <= {"status", "event"}
    assert world.condition("Paused")["status"] == "True"


async def test_external_mode_copies_the_scale_subresource() -> None:
    world = world_with(manifest(replicas=3, scaling={"mode": "External", "minReplicas": 1, "maxReplicas": 4}))
    await settle(world)
    assert world.deployment["spec"]["replicas"] == 3


async def test_advise_sets_a_first_count_and_leaves_the_field_out_ever_after() -> None:
    world = world_with(manifest(scaling={"mode": "Advise", "minReplicas": 2, "maxReplicas": 4}))
    context = operator(world)
    await reconcile(KEY, context)
    assert world.deployment["spec"]["replicas"] == 2
    await reconcile(KEY, context)
    assert "replicas" not in world.deployment["spec"]


async def test_a_smaller_count_is_preceded_by_the_order_of_leaving() -> None:
    world, clock = world_with(manifest(scaling={"minReplicas": 3, "maxReplicas": 4})), Clock()
    context = operator(world, clock=clock)
    await reconcile(KEY, context)
    world.pods = [pod("a"), pod("b"), pod("c")]
    await reconcile(KEY, context)
    world.edit(scaling={"minReplicas": 1, "maxReplicas": 2})
    world.writes.clear()
    await reconcile(KEY, context)
    costs = [what for what in world.writes if what.startswith("apply Pod ")]
    assert costs
    assert world.writes.index(costs[-1]) < world.writes.index("apply Deployment chat")
    assert world.deployment["spec"]["replicas"] < 3


async def test_limits_go_to_every_ready_engine_with_the_token() -> None:
    world, engines = world_with(), Engines()
    world.pods = [pod("a"), pod("b", ready=False, conditions=[])]
    await reconcile(KEY, operator(world, engines))
    assert [name for name, _, _ in engines.patched] == ["a"]


async def test_another_writers_count_is_reported_once_by_name() -> None:
    world = world_with()
    context = operator(world)
    await reconcile(KEY, context)
    live = world.deployment
    live["spec"]["replicas"] = 2
    live["metadata"]["managedFields"] = [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]
    world.store.delete("Deployment", "ns", "chat")
    world.store.create(live)
    for _ in range(3):
        await reconcile(KEY, context)
    told = [message for reason, message, _ in world.events if reason == "OtherWriter"]
    assert len(told) == 1
    assert "'kubectl' changed the Deployment's replicas from 1 to 2" in told[0]


async def test_a_deleted_resource_is_forgotten() -> None:
    world = world_with()
    context = operator(world)
    await reconcile(KEY, context)
    world.store.delete(contract.KIND, KEY.namespace, KEY.name)
    assert await reconcile(KEY, context) == GONE
    assert not context.memories and not context.decisions


async def test_a_resource_made_anew_under_the_same_name_starts_without_memory() -> None:
    world = world_with()
    context = operator(world)
    await reconcile(KEY, context)
    before = context.memories[KEY]
    world.store.delete(contract.KIND, KEY.namespace, KEY.name)  # and nobody looked in between
    world.store.apply(manifest())
    await reconcile(KEY, context)
    assert before.uid and context.memories[KEY].uid not in ("", before.uid)


async def test_silent_engines_are_stale_metrics_and_no_error() -> None:
    world, engines, clock = world_with(), Engines(text=None), Clock()
    world.pods = [pod("a")]
    context = operator(world, engines, clock)
    for _ in range(10):
        await reconcile(KEY, context)
        clock.now += 5
    assert world.condition("MetricsAvailable")["reason"] == "MetricsStale"
    assert world.condition("Ready")["status"] == "True"


CRASHED: dict[str, Any] = {
    "phase": "Running",
    "containerStatuses": [
        {
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
    world.pods = [pod("fresh", ready=False, conditions=[], containerStatuses=[{"state": {"running": {}}}])]
    await reconcile(KEY, context)
    assert world.condition("Ready")["reason"] == "ModelNotFound"  # it has proved nothing yet
    world.pods = [pod("fresh")]
    await reconcile(KEY, context)
    assert world.condition("Ready")["status"] == "True"


async def test_numbers_move_at_most_every_thirty_seconds() -> None:
    world, engines, clock = world_with(), Engines(), Clock()
    world.pods = [pod("a")]
    context = operator(world, engines, clock)
    changes = 0
    for step in range(24):
        engines.text = exposition(kv_block_seconds_total=2.0 * step * step)
        before = world.status.get("kvOccupancyPercent")
        await reconcile(KEY, context)
        changes += before != world.status.get("kvOccupancyPercent")
        clock.now += 5
    assert 2 <= changes <= 5


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


async def test_what_the_schemas_defaults_fill_in_is_no_change() -> None:
    world = world_with()
    await settle(world)
    known = structural_schema(LLMDeploymentStatus)["properties"]
    filled = {name: value["default"] for name, value in known.items() if "default" in value}
    assert {**filled, **world.status} == world.status


async def test_a_large_fleet_whose_starts_come_one_by_one_writes_them_with_the_numbers() -> None:
    world, clock = world_with(manifest(scaling={"minReplicas": 24, "maxReplicas": 24})), Clock()
    context, changes = operator(world, clock=clock), 0
    text = exposition() + 'sluice_load_phase_seconds{phase="load"} 7\n'
    context = replace(context, scraper=Engines(text))
    for number in range(24):
        world.pods = [*world.pods, pod(f"chat-{number}")]
        before = world.status.get("coldStarts")
        await reconcile(KEY, context)
        changes += before != world.status.get("coldStarts")
        clock.now += 5
    assert 2 <= changes <= 5
    assert len(world.status["coldStarts"]) == 16


async def test_a_readiness_that_blinks_makes_no_cold_start_for_whoever_looks() -> None:
    world, clock = world_with(), Clock()
    world.pods = [pod("a")]
    context = operator(world, clock=clock)
    await reconcile(KEY, context)
    learned = world.status["coldStarts"]
    assert [entry["total"] for entry in learned] == [10.0]
    ready = world.pods[0]["status"]["conditions"][1]
    for status in ("False", "True"):
        ready.update(status=status, lastTransitionTime="2026-11-21T11:00:00Z")
        clock.now += 60
        await reconcile(KEY, context)
    assert world.status["coldStarts"] == learned
    world.pods.append(copy.deepcopy(world.pods[0]))
    world.pods[1]["metadata"]["name"] = "b"  # whose start its predecessor did not know
    await reconcile(KEY, operator(world, clock=clock))
    assert world.status["coldStarts"] == learned

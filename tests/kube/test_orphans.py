"""Children that have lost their owner reference, on a real API server: the operator adopts its own, and no others."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from sluice import contract
from sluice_operator.cluster.client import Object, OwnerDeleted
from sluice_operator.cluster.kinds import path
from tests.kube.api_server import ApiServer, NoApiServer, controllers
from tests.kube.helm import wait_until
from tests.kube.specs import BASE
from tests.kube.world import RESTORED, World, document, in_worlds

MERGE: Final = "application/merge-patch+json"
ORPHANED: Final[Object] = {"metadata": {"ownerReferences": []}}
CHILDREN: Final = (
    "ConfigMap chat-targets",
    "Deployment chat",
    "NetworkPolicy chat-engine",
    "PodDisruptionBudget chat",
    "Service chat",
    "Service chat-engines",
    "ServiceAccount chat-engine",
)
OWNER_OF_ANOTHER: Final[Object] = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "another"}
# Changes after which an orphan is not provably a child of this resource.
UNPROVEN: Final[dict[str, Object]] = {
    "another controller": {"metadata": {"ownerReferences": [OWNER_OF_ANOTHER | {"controller": True}]}},
    "no record of its writers": ORPHANED | {"metadata": ORPHANED["metadata"] | {"managedFields": [{}]}},
    "the label of another resource": {
        "metadata": ORPHANED["metadata"] | {"labels": {contract.LABEL_INSTANCE: "other"}}
    },
    "no label of an operator": {"metadata": ORPHANED["metadata"] | {"labels": {contract.LABEL_MANAGED_BY: None}}},
}


async def change(world: World, child: str, body: Object) -> Object:
    """Another writer changes a child."""
    kind, _, name = child.partition(" ")
    return await world.send("PATCH", path(kind, world.namespace, name), body, MERGE)


def owners(child: Object) -> list[str]:
    return [each["uid"] for each in child["metadata"].get("ownerReferences") or ()]


@pytest.mark.parametrize("child", CHILDREN)
def test_a_child_without_its_owner_is_adopted_again_and_then_nothing_is_written(crd: ApiServer, child: str) -> None:
    kind, _, name = child.partition(" ")

    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(BASE)
        await world.settle()
        uid = (await world.child(contract.KIND, "chat"))["metadata"]["uid"]
        before = await world.state()
        for _ in range(2):
            assert owners(await change(world, child, ORPHANED)) == []
            await world.pass_for(RESTORED)
            assert owners(await world.child(kind, name)) == [uid]
            assert (await world.condition("Ready"))["reason"] != "Conflict"
        assert await world.state() == before
        written = len(world.client.writes)
        await world.pass_for(RESTORED)
        assert world.client.writes[written:] == ()

    in_worlds(crd, story)


@pytest.mark.parametrize("mode", ["Auto", "Advise"])
@pytest.mark.parametrize(
    "lost", [ORPHANED, {"metadata": {"labels": {contract.LABEL_NAME: None}}}], ids=["owner", "label"]
)
@pytest.mark.parametrize("is_restarted", [False, True])
def test_the_count_of_a_deployment_that_has_lost_its_owner_or_its_label_stays(
    crd: ApiServer, mode: str, lost: Object, is_restarted: bool
) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(BASE | {"scaling": {"minReplicas": 1, "maxReplicas": 8, "mode": mode}})
        await world.settle()
        await change(world, "Deployment chat", {"spec": {"replicas": 5}})
        await world.pass_for(RESTORED)
        assert (await world.child("Deployment", "chat"))["spec"]["replicas"] == 5
        await change(world, "Deployment chat", lost)
        operator = world.operator() if is_restarted else world.process
        assert operator is not None
        await operator.reconcile(world.key)
        assert (await world.child("Deployment", "chat"))["spec"]["replicas"] == 5
        await world.pass_for(RESTORED)  # the first pass may be earlier than the event of the watch
        live = await world.child("Deployment", "chat")
        assert live["spec"]["replicas"] == 5
        assert len(owners(live)) == 1 and live["metadata"]["labels"][contract.LABEL_NAME] == contract.ENGINE_APP

    in_worlds(crd, story)


@pytest.mark.parametrize("child", ["Deployment chat", "Service chat", "ConfigMap chat-targets"])
@pytest.mark.parametrize("why", UNPROVEN)
def test_an_orphan_that_may_be_of_another_stays_as_it_is(crd: ApiServer, child: str, why: str) -> None:
    kind, _, name = child.partition(" ")

    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(BASE)
        await world.settle()
        after = await change(world, child, UNPROVEN[why])
        await world.pass_for(RESTORED)
        assert await world.child(kind, name) == after
        ready = await world.condition("Ready")
        assert (ready["status"], ready["reason"]) == ("False", "Conflict")
        assert f"{kind} {world.namespace}/{name}" in ready["message"]

    in_worlds(crd, story)


def test_an_owner_that_is_not_the_controller_stays_beside_the_resource(crd: ApiServer) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(BASE)
        await world.settle()
        await change(world, "Service chat", {"metadata": {"ownerReferences": [OWNER_OF_ANOTHER]}})
        await world.pass_for(RESTORED)
        uid = (await world.child(contract.KIND, "chat"))["metadata"]["uid"]
        assert set(owners(await world.child("Service", "chat"))) == {uid, "another"}

    in_worlds(crd, story)


def test_a_child_that_a_deletion_leaves_behind_is_not_adopted_by_the_old_resource_and_is_by_a_new_one(
    crd: ApiServer, tmp_path: Path
) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(BASE)
        operator = await world.settle()
        before = await world.state()
        old = await world.child(contract.KIND, "chat")
        service = await world.child("Service", "chat")
        where = path(contract.KIND, world.namespace, "chat")
        await world.send("DELETE", where, {"propagationPolicy": "Orphan"})
        orphan = await change(world, "Service chat", ORPHANED)
        manifest = {name: service[name] for name in ("apiVersion", "kind", "spec")} | {
            "metadata": {name: service["metadata"][name] for name in ("name", "namespace", "labels", "ownerReferences")}
        }
        await world.watched.deliver()
        with pytest.raises(OwnerDeleted):  # a pass that began before has the old state of the resource
            await world.client.apply(manifest, owner=old)
        assert await world.child("Service", "chat") == orphan
        await asyncio.to_thread(_collect, crd, tmp_path, where)
        await world.send("POST", path(contract.KIND, world.namespace), document(BASE))
        await world.settle(operator)
        uid = (await world.child(contract.KIND, "chat"))["metadata"]["uid"]
        assert uid != old["metadata"]["uid"]
        for kind in ("Deployment", "Service", "PodDisruptionBudget"):
            assert owners(await world.child(kind, "chat")) == [uid]
        assert set(before) - {each for each in before if each.startswith("Secret")} <= set(await world.state())

    in_worlds(crd, story)


def _collect(server: ApiServer, folder: Path, where: str) -> None:
    """The garbage collector of Kubernetes takes the owner from what it leaves behind."""
    try:
        with controllers(server, folder, "garbage-collector-controller"):
            wait_until(lambda: server.get(where) is None)
    except NoApiServer as error:
        pytest.skip(str(error))

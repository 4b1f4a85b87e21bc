"""Fields that another writer sets and that exclude the operator's own, on a real API server: it restores the child."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from sluice_operator.cluster.client import Object
from sluice_operator.cluster.kinds import path
from tests.kube.api_server import ApiServer
from tests.kube.specs import BASE
from tests.kube.world import RESTORED, World, in_worlds

STRATEGIC: Final = "application/strategic-merge-patch+json"
PORT: Final = {"name": "http", "port": 80, "targetPort": "http"}
# The API server takes the change, and refuses ours beside it.
CHANGES: Final[dict[str, Object]] = {
    "Service chat": {"spec": {"ports": [{"$patch": "replace"}, PORT]}},
    "Service chat-engines": {"spec": {"ports": [{"$patch": "replace"}, PORT]}},
    "PodDisruptionBudget chat": {"spec": {"maxUnavailable": None, "minAvailable": 5}},
    "Deployment chat": {
        "spec": {"template": {"spec": {"volumes": [{"name": "tmp", "emptyDir": None, "hostPath": {"path": "/"}}]}}}
    },
}
OFF: Final = BASE | {"scaling": {"mode": "Off"}}


async def edit(world: World, child: str, change: Object) -> None:
    kind, _, name = child.partition(" ")
    labels = {"metadata": {"labels": {"team": "platform"}}}
    await world.send("PATCH", path(kind, world.namespace, name), change | labels, STRATEGIC)


async def without_label(world: World, child: str) -> dict[str, Any]:
    """The state, but for the label of the other writer, which must be there."""
    found = await world.state()
    assert found[child]["metadata"]["labels"].pop("team") == "platform"
    return found


@pytest.mark.parametrize("child", CHANGES)
def test_row_a_child_with_a_field_that_excludes_ours_is_restored_and_keeps_labels_of_others(
    crd: ApiServer, child: str
) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(BASE)
        await world.settle()
        before = await world.state()
        for _ in range(2):
            await edit(world, child, CHANGES[child])
            await world.pass_for(RESTORED)
            assert await without_label(world, child) == before
        written = len(world.client.writes)
        await world.pass_for(RESTORED)
        assert world.client.writes[written:] == ()

    in_worlds(crd, story)


def test_a_count_that_the_operator_leaves_to_others_stays_with_them(crd: ApiServer) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(OFF)
        await world.settle()
        change = CHANGES["Deployment chat"]["spec"] | {"replicas": 3}
        await edit(world, "Deployment chat", {"spec": change})
        await world.pass_for(RESTORED)
        live = await world.child("Deployment", "chat")
        volumes = {each["name"]: each for each in live["spec"]["template"]["spec"]["volumes"]}
        assert "hostPath" not in volumes["tmp"] and "emptyDir" in volumes["tmp"]
        assert live["spec"]["replicas"] == 3

    in_worlds(crd, story)

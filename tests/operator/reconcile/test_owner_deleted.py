"""A resource that is deleted during a pass gets no new children, and the pass ends without an error."""

from collections.abc import Callable

import pytest

from sluice import contract
from sluice_operator.cluster.client import Object
from sluice_operator.reconcile.reconcile import GONE, reconcile
from tests.operator.books import KEY, BookWorld, operator, settle, world_with

FOREGROUND = {"deletionTimestamp": "2026-11-21T09:00:00Z", "finalizers": ["foregroundDeletion"]}


def delete_in_foreground(world: BookWorld) -> None:
    """The API server marks the resource, and the garbage collector deletes its children."""
    world.store.apply(world.resource | {"metadata": world.resource["metadata"] | FOREGROUND})
    collect(world)


def delete(world: BookWorld) -> None:
    world.store.delete(contract.KIND, KEY.namespace, KEY.name)
    collect(world)


def recreate(world: BookWorld) -> None:
    spec = world.resource["spec"]
    delete(world)
    world.store.apply(world_with().resource | {"spec": spec})


def collect(world: BookWorld) -> None:
    for kind in ("ConfigMap", "ServiceAccount", "Service", "PodDisruptionBudget", "Deployment", "Secret"):
        for child in world.store.list_all(kind):
            world.store.delete(kind, KEY.namespace, child["metadata"]["name"])


class DeletedDuringThePass(BookWorld):
    """The deletion happens just after the pass has read the resource."""

    deletion: Callable[[BookWorld], None] | None = None

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        found = await super().get(kind, namespace, name)
        if kind == contract.KIND and self.deletion is not None:
            deletion, self.deletion = self.deletion, None
            deletion(self)
        return found


@pytest.mark.parametrize("deletion", [delete_in_foreground, delete, recreate])
@pytest.mark.parametrize("passes", [0, 3], ids=["before the first pass", "with children"])
async def test_a_pass_creates_no_child_of_a_resource_that_is_deleted_meanwhile(
    deletion: Callable[[BookWorld], None], passes: int
) -> None:
    world = DeletedDuringThePass(store=world_with().store)
    await settle(world, passes=passes)
    world.writes.clear()
    world.deletion = deletion
    context = operator(world)
    assert await reconcile(KEY, context) == GONE
    assert world.writes == [] and world.deployment == {}
    assert KEY not in context.memories


async def test_a_recreated_resource_gets_its_children_in_the_next_pass() -> None:
    world = DeletedDuringThePass(store=world_with().store)
    world.deletion = recreate
    context = operator(world)
    await reconcile(KEY, context)
    assert await reconcile(KEY, context) < GONE
    assert world.deployment["metadata"]["ownerReferences"][0]["uid"] == world.resource["metadata"]["uid"]

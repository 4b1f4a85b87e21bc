"""Each kind of child, deleted or changed by another writer in any order, is restored in time, on a real API server."""

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sluice import contract
from sluice_operator.cluster.client import Object
from sluice_operator.cluster.kinds import path
from sluice_operator.reconcile.children.admin_token import derive
from sluice_operator.render import names
from tests.kube.api_server import ApiServer, NoApiServer, controllers
from tests.kube.helm import wait_until
from tests.kube.specs import BASE
from tests.kube.world import INTERVAL, RESTORED, World, in_worlds
from tests.operator.fake_cluster import KEY_OF_OPERATOR

MERGE = "application/merge-patch+json"
SECRET = "SECRET"  # stands for the name of the Secret, which is another one for each resource
# What another writer changes of a child.
SPECS: dict[str, Object] = {
    "ConfigMap chat-targets": {"data": {contract.TARGETS_FILE: "{}"}},
    "Deployment chat": {"spec": {"revisionHistoryLimit": 9}},
    "NetworkPolicy chat-engine": {"spec": {"ingress": []}},
    "PodDisruptionBudget chat": {"spec": {"maxUnavailable": 7}},
    "Service chat": {"spec": {"selector": {contract.LABEL_INSTANCE: "nowhere"}}},
    "Service chat-engines": {"spec": {"selector": {contract.LABEL_INSTANCE: "nowhere"}}},
    "ServiceAccount chat-engine": {"automountServiceAccountToken": True},
    f"ConfigMap {SECRET}": {"metadata": {"ownerReferences": []}},
}
METADATA: tuple[Object, ...] = (
    {"metadata": {"labels": {contract.LABEL_INSTANCE: "nowhere"}}},
    {"metadata": {"labels": {contract.LABEL_NAME: None}}},  # so that no watch shows it
)
CHANGES = [(child, change) for child, spec in SPECS.items() for change in (None, spec, *METADATA)]  # None: deleted
CHANGES.append((f"Secret {SECRET}", None))  # which is immutable


async def secret_of(world: World) -> str:
    """The name of the Secret of a world's resource."""
    uid = str((await world.child(contract.KIND, "chat"))["metadata"]["uid"])
    return names.admin_secret("chat", derive(KEY_OF_OPERATOR, uid))


async def act(world: World, child: str, change: Object | None) -> None:
    """Another writer deletes or changes a child. There is no garbage collector: it does what that one would do."""
    kind, _, name = child.replace(SECRET, await secret_of(world)).partition(" ")
    where = path(kind, world.namespace, name)
    if world.server.get(where) is None:
        return
    if change is not None:
        await world.send("PATCH", where, change, MERGE)
        return
    await world.send("DELETE", where)
    if kind == "Secret":
        await act(world, f"ConfigMap {SECRET}", None)


async def everything(world: World) -> dict[str, Object]:
    """Every child, the sentinel of the Secret too, which lives as long as that one."""
    secret = await world.child("Secret", await secret_of(world))
    sentinel = await world.child("ConfigMap", await secret_of(world))
    assert [each["uid"] for each in sentinel["metadata"]["ownerReferences"]] == [secret["metadata"]["uid"]]
    labels, data = sentinel["metadata"]["labels"], sentinel["data"]
    return await world.state() | {"sentinel": {"labels": labels, "data": data}}


@settings(
    max_examples=12,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(changes=st.lists(st.sampled_from(CHANGES), min_size=1, max_size=6))
def test_row_children_that_another_writer_deletes_or_changes_are_restored(
    crd: ApiServer, changes: list[tuple[str, Object | None]]
) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(BASE)
        await world.settle()
        before = await everything(world)
        for child, change in changes:
            await act(world, child, change)
        await world.pass_for(RESTORED)
        assert await everything(world) == before

    in_worlds(crd, story)


@pytest.mark.parametrize("child", sorted({child for child, _ in CHANGES}))
def test_each_child_is_restored_again_and_again_and_then_nothing_is_written(crd: ApiServer, child: str) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(BASE)
        await world.settle()
        before = await everything(world)
        for change in [change for its, change in CHANGES if its == child] * 2:
            await act(world, child, change)
            await world.pass_for(RESTORED)
            assert await everything(world) == before
        written = len(world.client.writes)
        await world.pass_for(RESTORED)
        assert world.client.writes[written:] == ()

    in_worlds(crd, story)


def test_the_content_of_a_secret_cannot_be_changed(crd: ApiServer) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(BASE)
        await world.settle()
        secret = await world.child("Secret", await secret_of(world))
        assert secret["immutable"] and set(secret["data"]) == {contract.ADMIN_TOKEN_KEY}

    in_worlds(crd, story)


def replica_sets(world: World) -> list[Object]:
    found = world.server.get(path("ReplicaSet", world.namespace))
    return [] if found is None else list(found["items"])


def _has_replica_sets(world: World, count: int) -> bool:
    return len(replica_sets(world)) == count


def test_a_rollout_that_another_writer_has_paused_goes_on(crd: ApiServer, tmp_path: Path) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(BASE)
        await world.settle()
        await asyncio.to_thread(wait_until, partial(_has_replica_sets, world, 1))
        for image in ("engine:2", "engine:3"):  # `kubectl rollout pause`, and a change that would hang behind it
            before = len(replica_sets(world))
            await act(world, "Deployment chat", {"spec": {"paused": True}})
            await world.replace(BASE | {"engine": {"image": image}})
            await world.pass_for(RESTORED)
            assert not (await world.child("Deployment", "chat"))["spec"].get("paused")
            await asyncio.to_thread(wait_until, partial(_has_replica_sets, world, before + 1))

    try:
        with controllers(crd, tmp_path, "deployment-controller", "replicaset-controller"):
            in_worlds(crd, story)
    except NoApiServer as error:
        pytest.skip(str(error))


@pytest.fixture
def collector(crd: ApiServer, tmp_path: Path) -> Iterator[None]:
    """The garbage collector of Kubernetes over that API server."""
    try:
        with controllers(crd, tmp_path, "garbage-collector-controller"):
            yield
    except NoApiServer as error:
        pytest.skip(str(error))


def test_row_a_deleted_secret_is_restored_in_time_with_a_real_garbage_collector(
    crd: ApiServer, collector: None
) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(BASE)
        operator = await world.settle()
        before = await everything(world)
        where = path("ConfigMap", world.namespace, await secret_of(world))
        seconds = []
        for _ in range(3):  # the first one also waits for the collector to start; it reads all kinds anew each 30 s
            uid = (await world.child("ConfigMap", await secret_of(world)))["metadata"]["uid"]
            await world.send("DELETE", path("Secret", world.namespace, await secret_of(world)))
            began = time.monotonic()
            wait_until(lambda: world.server.get(where) is None)
            seconds.append(time.monotonic() - began)
            world.watched.wrote({"metadata": {"uid": uid}}, is_deletion=True)
            world.clock.now += INTERVAL
            await operator.reconcile(world.key)
            assert await everything(world) == before
            world.clock.now += RESTORED
        assert min(seconds) + INTERVAL < RESTORED, seconds

    in_worlds(crd, story)

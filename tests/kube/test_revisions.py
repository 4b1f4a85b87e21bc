"""Revisions of the pod template on a real API server, which fills in defaults: what comes back is what was stored.

There is no Deployment controller. The tests write the status that it would write.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from sluice_operator.cluster.client import Object
from sluice_operator.cluster.kinds import path
from tests.kube.api_server import ApiServer
from tests.kube.helm import apply_crd, remove_crd, wait_until
from tests.kube.specs import BASE
from tests.kube.world import World, worlds
from tests.operator.fake_cluster import Killed

COLLECTION = "/apis/sluice.dev/v1alpha1/llmdeployments"
AUTO: Object = BASE | {"rollout": {"rollback": "Auto"}}
BAD: Object = AUTO | {"engine": {"image": "engine:missing"}}
LATE = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}


@pytest.fixture(scope="module")
def crd(api_server: ApiServer) -> Iterator[ApiServer]:
    """The API server with the CRD."""
    apply_crd(api_server)
    wait_until(lambda: api_server.get(COLLECTION) is not None)
    yield api_server
    remove_crd(api_server)


def in_a_world(server: ApiServer, story: Callable[[World], Awaitable[None]]) -> None:
    """Run a story over one resource."""

    async def told() -> None:
        async with worlds(server) as make:
            await story(make())

    asyncio.run(told())


async def deployment(world: World) -> Object:
    """The Deployment as stored."""
    return await world.child("Deployment", "chat")


async def control(world: World, *conditions: Object, ready: int = 1) -> None:
    """The Deployment controller writes its status; `ready` of two pods are of the newest template and serve."""
    live = await deployment(world)
    counts = {"replicas": 1, "updatedReplicas": ready, "readyReplicas": 1}
    status = counts | {"observedGeneration": live["metadata"]["generation"], "conditions": list(conditions)}
    where = path("Deployment", world.namespace, "chat") + "/status"
    await world.send("PUT", where, live | {"status": status})


async def served(world: World) -> Object:
    """The stored template of a spec whose pods have been ready."""
    await world.create(AUTO)
    await world.settle()
    await control(world)
    await world.settle(passes=2)
    template: Object = (await deployment(world))["spec"]["template"]
    return template


async def ready(world: World) -> tuple[str, str]:
    """Status and reason of the Ready condition."""
    entry = await world.condition("Ready")
    return entry["status"], entry["reason"]


async def fail(world: World) -> None:
    """The bad spec is written, and its pods do not start within the deadline."""
    await world.settle(passes=2)
    await control(world, LATE, ready=0)
    world.clock.now += 600


def test_a_rollback_restores_the_stored_template_exactly(crd: ApiServer) -> None:
    async def story(world: World) -> None:
        good = await served(world)
        await world.replace(BAD)
        await fail(world)
        assert (await deployment(world))["spec"]["template"] != good
        await world.settle(passes=2)
        assert (await deployment(world))["spec"]["template"] == good
        assert await ready(world) == ("False", "RolledBack")
        await control(world)
        await world.settle()
        assert (await deployment(world))["spec"]["template"] == good
        await world.replace(AUTO)
        await world.settle()
        assert (await deployment(world))["spec"]["template"] == good

    in_a_world(crd, story)


def test_an_operator_killed_after_any_write_of_a_rollback_goes_back_all_the_same(crd: ApiServer) -> None:
    async def one(world: World, k: int) -> bool:
        """Whether the operator was killed at its k-th write."""
        good = await served(world)
        await world.replace(BAD)
        await fail(world)
        world.client.kill_after = len(world.client.writes) + k
        try:
            await world.settle(passes=2)
            killed = False
        except Killed:
            killed = True
        world.client.kill_after = None
        await world.settle(passes=2)
        await control(world)
        await world.settle(passes=2)
        assert (await deployment(world))["spec"]["template"] == good, k
        assert await ready(world) == ("False", "RolledBack"), k
        return killed

    async def told() -> None:
        async with worlds(crd) as make:
            kills = [await one(make(), k) for k in range(1, 8)]
            assert any(kills)

    asyncio.run(told())


def test_a_newer_operator_writes_no_deployment(crd: ApiServer) -> None:
    async def story(world: World) -> None:
        await served(world)
        before = (await deployment(world))["metadata"]["resourceVersion"]
        await world.settle(world.operator(engine_image="engine:2"))
        assert (await deployment(world))["metadata"]["resourceVersion"] == before

    in_a_world(crd, story)

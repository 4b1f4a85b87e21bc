"""Acto's and Sieve's oracles on a real API server: where an operator ends depends on the spec, and on nothing before it.

The specs are generated from the CRD's schema. Sources: Gu et al., "Acto", SOSP 2023 (state and recovery oracles); Sun et
al., "Sieve", OSDI 2022 (a controller killed after each write; stale, dropped and reordered events of its watches).
"""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from sluice_kube.errors import ClusterError
from sluice_operator.cluster.client import Object
from sluice_operator.cluster.kinds import path
from tests.kube.api_server import ApiServer
from tests.kube.specs import BASE, EDITED, in_modes, specs
from tests.kube.world import World, in_worlds
from tests.operator.fake_cluster import Killed

AT_REST = 60.0  # seconds for which a settled operator writes nothing
MERGE = "application/merge-patch+json"
seeds = st.integers(0, 2**32)  # of what a disordered feed of the operator's cache does to the events of its watches

# Without shrinking, which would take minutes here: a spec differs from BASE in a few fields anyway.
examples = settings(
    max_examples=8,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


async def is_accepted(world: World) -> bool:
    """True if the API server takes the children of the spec, which the schema alone cannot ensure."""
    try:
        await world.settle(world.process)
    except ClusterError as error:
        assert error.status == 422, error
        return False
    return True


async def edit_children(world: World) -> None:
    """Another user edits one child and deletes others."""
    selector = {"spec": {"selector": {"app": "nothing"}}}
    await world.send("PATCH", path("Service", world.namespace, "chat"), selector, MERGE)
    await world.send("DELETE", path("PodDisruptionBudget", world.namespace, "chat"))
    await world.send("DELETE", path("ConfigMap", world.namespace, "chat-targets"))


@examples
@given(a=specs(), b=specs(), seed=st.none() | seeds)
def test_a_then_b_equals_a_fresh_b(crd: ApiServer, a: Object, b: Object, seed: int | None) -> None:
    async def story(make: Callable[[], World]) -> None:
        fresh, changed = make(), make()
        await fresh.create(b)
        assume(await is_accepted(fresh))
        changed.disorder(seed)
        await changed.create(a)
        if await is_accepted(changed):
            await edit_children(changed)
        await changed.replace(b)
        await changed.settle(changed.process)
        await changed.recover()
        assert await changed.state() == await fresh.state()

    in_worlds(crd, story)


@examples
@given(a=specs(), b=specs(), seed=st.none() | seeds)
def test_a_then_b_then_a_equals_a(crd: ApiServer, a: Object, b: Object, seed: int | None) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(a)
        assume(await is_accepted(world))
        before = await world.state()
        world.disorder(seed)
        await world.replace(b)
        await is_accepted(world)
        await world.replace(a)
        await world.settle(world.process)
        await world.recover()
        assert await world.state() == before

    in_worlds(crd, story)


def has_own_count(spec: Object) -> bool:
    """True if the spec decides the count; else it stays as it is."""
    return spec["scaling"].get("mode", "Auto") in ("Auto", "External")


def take_count(state: Object) -> int:
    """Remove the Deployment's count from the state, and return it."""
    return int(state["Deployment chat"]["spec"].pop("replicas"))


@examples
@given(a=in_modes(), b=in_modes(), seed=st.none() | seeds)
def test_a_then_b_equals_a_fresh_b_across_scaling_modes_but_for_a_count_that_is_not_the_specs(
    crd: ApiServer, a: Object, b: Object, seed: int | None
) -> None:
    async def story(make: Callable[[], World]) -> None:
        fresh, changed = make(), make()
        await fresh.create(b)
        assume(await is_accepted(fresh))
        await changed.create(a)
        assume(await is_accepted(changed))
        before = take_count(await changed.state())
        changed.disorder(seed)
        await changed.replace(b)
        await changed.settle(changed.process)
        await changed.recover()
        wanted, found = await fresh.state(), await changed.state()
        counts = take_count(wanted), take_count(found)
        assert found == wanted
        assert counts[1] == (counts[0] if has_own_count(b) else before)

    in_worlds(crd, story)


@examples
@given(spec=specs())
def test_a_settled_operator_writes_nothing_for_a_minute(crd: ApiServer, spec: Object) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(spec)
        assume(await is_accepted(world))
        await world.settle(world.process)
        before, written = await world.versions(), len(world.client.writes)
        await world.pass_for(AT_REST)
        assert world.client.writes[written:] == ()
        assert await world.versions() == before

    in_worlds(crd, story)


async def edited(world: World) -> None:
    """The story of the killed operator: created, settled, edited, settled."""
    await world.create(BASE)
    await world.settle()
    await world.replace(EDITED)
    await world.settle(world.process)


async def killed_after(world: World, write: int) -> str:
    """The same story with a process that is killed after this write, and a successor; returns the write, if there is one."""
    world.client.kill_after = write
    await world.create(BASE)
    killed = ""
    for spec in (BASE, EDITED):
        if spec is EDITED:
            await world.replace(spec)
        try:
            await world.settle(world.process)
        except Killed as error:
            killed, world.client.kill_after = str(error), None
            await world.settle()
    world.client.kill_after = None
    await world.recover()
    return killed


@pytest.mark.parametrize("is_disordered", [False, True], ids=["events in order", "events disordered"])
def test_an_operator_killed_after_any_write_leaves_the_state_of_the_undisturbed_run(
    crd: ApiServer, is_disordered: bool
) -> None:
    async def story(make: Callable[[], World]) -> None:
        undisturbed = make()
        await edited(undisturbed)
        wanted, writes = await undisturbed.state(), len(undisturbed.client.writes)

        async def one(write: int) -> bool:
            world = make()
            world.disorder(write if is_disordered else None)
            killed = await killed_after(world, write)
            assert await world.state() == wanted, f"killed after write {write}: {killed}"
            return bool(killed)

        kills = sum(await asyncio.gather(*map(one, range(1, writes + 1))))
        assert kills == writes or (is_disordered and kills > writes / 2), f"{kills} kills in {writes} writes"

    in_worlds(crd, story)

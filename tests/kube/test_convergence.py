"""Acto's and Sieve's oracles on a real API server: where an operator ends depends on the spec, and on nothing before it.

The specs are generated from the CRD's schema. Sources: Gu et al., "Acto", SOSP 2023 (state and recovery oracles); Sun et
al., "Sieve", OSDI 2022 (a controller killed after each write).
"""

from collections.abc import Callable

from hypothesis import HealthCheck, Phase, assume, given, settings

from sluice_kube.errors import ClusterError
from sluice_operator.cluster.client import Object
from tests.kube.api_server import ApiServer
from tests.kube.specs import BASE, EDITED, specs
from tests.kube.world import World, in_worlds
from tests.operator.fake_cluster import Killed

INTERVAL = 5.0  # seconds between two passes without an event
AT_REST = 60.0  # seconds for which a settled operator writes nothing

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
        await world.settle()
    except ClusterError as error:
        assert error.status == 422, error
        return False
    return True


@examples
@given(a=specs(), b=specs())
def test_a_then_b_equals_a_fresh_b(crd: ApiServer, a: Object, b: Object) -> None:
    async def story(make: Callable[[], World]) -> None:
        fresh, changed = make(), make()
        await fresh.create(b)
        assume(await is_accepted(fresh))
        await changed.create(a)
        await is_accepted(changed)
        await changed.replace(b)
        await changed.settle()
        assert await changed.state() == await fresh.state()

    in_worlds(crd, story)


@examples
@given(a=specs(), b=specs())
def test_a_then_b_then_a_equals_a(crd: ApiServer, a: Object, b: Object) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(a)
        assume(await is_accepted(world))
        before = await world.state()
        await world.replace(b)
        await is_accepted(world)
        await world.replace(a)
        await world.settle()
        assert await world.state() == before

    in_worlds(crd, story)


@examples
@given(spec=specs())
def test_a_settled_operator_writes_nothing_for_a_minute(crd: ApiServer, spec: Object) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(spec)
        assume(await is_accepted(world))
        operator = await world.settle()
        before, written = await world.versions(), len(world.client.writes)
        for _ in range(int(AT_REST / INTERVAL)):
            world.clock.now += INTERVAL
            await operator.reconcile(world.key)
        assert world.client.writes[written:] == ()
        assert await world.versions() == before

    in_worlds(crd, story)


async def edited(world: World) -> None:
    """The story of the killed operator: created, settled, edited, settled."""
    await world.create(BASE)
    await world.settle()
    await world.replace(EDITED)
    await world.settle()


async def killed_after(world: World, write: int) -> str:
    """The same story with a process that is killed after this write, and a successor; returns the write."""
    world.client.kill_after = write
    await world.create(BASE)
    killed = ""
    for spec in (BASE, EDITED):
        if spec is EDITED:
            await world.replace(spec)
        try:
            await world.settle()
        except Killed as error:
            killed, world.client.kill_after = str(error), None
            await world.settle()
    return killed


def test_an_operator_killed_after_any_write_leaves_the_state_of_the_undisturbed_run(crd: ApiServer) -> None:
    async def story(make: Callable[[], World]) -> None:
        undisturbed = make()
        await edited(undisturbed)
        wanted = await undisturbed.state()
        for write in range(1, len(undisturbed.client.writes) + 1):
            world = make()
            killed = await killed_after(world, write)
            assert killed, f"the run has no write {write}"
            assert await world.state() == wanted, f"killed after write {write}: {killed}"

    in_worlds(crd, story)

"""How old the start is that a pod is in, and since when a pod serves whose readiness comes and goes."""

from datetime import UTC, datetime, timedelta

import pytest

from sluice_operator.decide.values import PodView
from sluice_operator.observe import Seen, observe
from sluice_operator.world import Object
from tests.operator.books import KEY, Engines, pod, world_with

CREATED = datetime(2026, 11, 21, 8, tzinfo=UTC)


async def looked(*looks: tuple[float, Object]) -> list[PodView]:
    """The pod at each look: (seconds since its creation, what it says then)."""
    world, seen, found = world_with(), Seen(), []
    for at, item in looks:
        world.pods = [item]
        wall = CREATED + timedelta(seconds=at)
        fleet, seen = await observe(KEY, world, Engines(), seen, clock=lambda now=at: now, wall=wall)  # type: ignore[misc]
        found.append(fleet.observed.pods[0])
    return found


async def ages(*looks: tuple[float, Object]) -> list[float | None]:
    return [view.start_age for view in await looked(*looks)]


def unready(restarts: int = 0, started: str = "2026-11-21T08:00:03Z") -> Object:
    container = {"restartCount": restarts, "state": {"running": {"startedAt": started}}}
    return pod("a", ready=False, podIP="10.0.0.1", containerStatuses=[container])


async def test_a_first_start_is_as_old_as_the_pod_through_all_its_phases() -> None:
    pulling = pod("a", ready=False, containerStatuses=[{"state": {"waiting": {"reason": "ContainerCreating"}}}])
    assert await ages((2.0, pulling), (30.0, unready())) == [2.0, 30.0]


async def test_a_container_that_was_started_again_is_as_old_as_that_start() -> None:
    assert await ages((7210.0, unready(1, "2026-11-21T10:00:00Z"))) == [10.0]


async def test_a_pod_that_lost_its_readiness_is_as_old_as_that_loss() -> None:
    assert (await ages((7200.0, pod("a")), (7205.0, unready()), (7215.0, unready())))[1:] == [0.0, 10.0]


@pytest.mark.parametrize(("away", "since"), [(5.0, 100.0), (15.0, 100.0), (20.0, 7220.0)])
async def test_a_readiness_that_blinks_was_there_all_the_while(away: float, since: float) -> None:
    views = await looked((100.0, pod("a")), (7200.0, unready()), (7200.0 + away, pod("a")), (7300.0, pod("a")))
    assert [view.since for view in views] == [100.0, 7200.0, since, since]


async def test_an_engine_that_was_started_anew_within_a_blink_serves_only_since_then() -> None:
    again = pod("a")
    again["status"]["containerStatuses"] = unready(1, "2026-11-21T10:00:02Z")["status"]["containerStatuses"]
    views = await looked((100.0, pod("a")), (7200.0, unready()), (7205.0, again))
    assert views[-1].since == 7205.0


async def test_an_engine_that_loads_is_asked_and_need_not_answer() -> None:
    (view,) = await looked((5.0, unready()))
    assert view.phase == "loading" and view.sample is not None
    world = world_with()
    world.pods = [unready()]
    wall = CREATED + timedelta(seconds=5)
    fleet, _ = await observe(KEY, world, Engines(text=None), Seen(), clock=lambda: 5.0, wall=wall)
    assert fleet.observed.pods[0].sample is None and fleet.scrape_failures == 0

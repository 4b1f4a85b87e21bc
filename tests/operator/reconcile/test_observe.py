"""How old the start is that a pod is in, how long it took, and since when a pod serves whose readiness comes and goes."""

import copy
from datetime import UTC, datetime, timedelta

import pytest

from sluice_operator.autoscaler import decide
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Decision, PodView
from sluice_operator.cluster.client import Object
from sluice_operator.reconcile.context import Context
from sluice_operator.reconcile.observation_state import ObservationState
from sluice_operator.reconcile.observe import observe
from tests.operator.autoscaler.fleet import spec
from tests.operator.fake_cluster import Engines, FakeCluster, cluster_with, deployed, exposition, pod

CREATED = datetime(2026, 11, 21, 8, tzinfo=UTC)


def at(cluster: FakeCluster, engines: Engines, now: float, wall: datetime) -> Context:
    """Both clocks stand still."""
    return Context(cluster, engines, clock=lambda: now, wall=lambda: wall)


async def looked(*looks: tuple[float, Object | None], wrong: float = 0.0, text: str | None = None) -> list[PodView]:
    """The pod at each look: (seconds since its creation, what it says then; None: it is not there). Our wall clock is
    `wrong` by so many seconds."""
    cluster, seen = deployed(cluster_with()), ObservationState()
    found: list[PodView] = []
    engines = Engines(text or exposition())
    for time, item in looks:
        cluster.pods = [] if item is None else [item]
        wall = CREATED + timedelta(seconds=time + wrong)
        fleet, seen = await observe(cluster.resource, seen, at(cluster, engines, time, wall))
        found += fleet.observed.pods
    return found


async def ages(*looks: tuple[float, Object | None], wrong: float = 0.0, text: str | None = None) -> list[float | None]:
    return [view.start_age for view in await looked(*looks, wrong=wrong, text=text)]


def later(stamp: str, seconds: float) -> str:
    return (datetime.fromisoformat(stamp) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def skewed(item: Object, node: float) -> Object:
    """The same pod on a node whose clock is ahead by so many seconds: what its kubelet and its runtime stamp."""
    item = copy.deepcopy(item)
    status = item["status"]
    if "startTime" in status:
        status["startTime"] = later(status["startTime"], node)
    for entry in status.get("conditions", ()):
        if entry["type"] == "Ready":
            entry["lastTransitionTime"] = later(entry["lastTransitionTime"], node)
    for container in status["containerStatuses"]:
        if "running" in container["state"]:
            container["state"]["running"]["startedAt"] = later(container["state"]["running"]["startedAt"], node)
    return item


def unready(restarts: int = 0, started: str = "2026-11-21T08:00:03Z") -> Object:
    container = {"name": "engine", "restartCount": restarts, "state": {"running": {"startedAt": started}}}
    return pod("a", ready=False, podIP="10.0.0.1", containerStatuses=[container])


PULLING = pod(
    "a", ready=False, containerStatuses=[{"name": "engine", "state": {"waiting": {"reason": "ContainerCreating"}}}]
)
SKEWS = [-600.0, 0.0, 600.0]


@pytest.mark.parametrize("wrong", SKEWS)
@pytest.mark.parametrize("node", SKEWS)
async def test_the_age_of_a_first_start_counts_from_its_first_observation_at_any_clock_skew(
    wrong: float, node: float
) -> None:
    looks = (2.0, skewed(PULLING, node)), (30.0, skewed(unready(), node))
    assert await ages(*looks, wrong=wrong) == [0.0, 28.0]


@pytest.mark.parametrize("wrong", SKEWS)
async def test_the_age_of_a_restarted_container_counts_from_the_first_observation_of_the_restart(wrong: float) -> None:
    again = unready(1, "2026-11-21T10:00:00Z")
    assert await ages((7100.0, unready()), (7210.0, again), (7215.0, again), wrong=wrong) == [0.0, 0.0, 5.0]


@pytest.mark.parametrize(("spent", "age"), [("270", 270.0), ("0.5", 4.0)])
async def test_a_new_operator_uses_the_load_time_that_the_engine_reports(spent: str, age: float) -> None:
    text = exposition() + f'sluice_load_phase_seconds{{phase="load"}} {spent}\n'
    assert (await ages((300.0, unready()), (304.0, unready()), text=text))[-1] == age


async def decided(wrong: float, node: float) -> Decision:
    """What is decided 20 s into the second start, where the first took 40 s."""
    first = pod("a")
    first["status"]["conditions"][1]["lastTransitionTime"] = "2026-11-21T08:00:40Z"
    second = unready() | {"metadata": pod("b")["metadata"]}
    cluster, seen, memory = deployed(cluster_with()), ObservationState(), AutoscalerState()
    for now, pods in ((0.0, []), (1.0, [PULLING]), (41.0, [first]), (50.0, [first, second])):
        cluster.pods = [skewed(item, node) for item in pods]
        wall = CREATED + timedelta(seconds=now + wrong)
        fleet, seen = await observe(cluster.resource, seen, at(cluster, Engines(), now, wall))
        _, memory = decide(spec(), fleet.observed, memory, now)
    fleet, _ = await observe(cluster.resource, seen, at(cluster, Engines(), 70.0, wall + timedelta(seconds=20)))
    return decide(spec(), fleet.observed, memory, 70.0)[0]


@pytest.mark.parametrize("wrong", SKEWS)
@pytest.mark.parametrize("node", SKEWS)
async def test_clocks_that_are_minutes_off_change_nothing_that_is_decided(wrong: float, node: float) -> None:
    decision = await decided(wrong, node)
    assert decision == await decided(0.0, 0.0)
    assert decision.cold_start is not None and decision.cold_start.total == 40.0
    assert decision.retry_after == 20.0


@pytest.mark.parametrize("set_forward", [0.0, 8.0, 600.0])
async def test_a_cold_start_cannot_exceed_the_time_since_the_first_observation(set_forward: float) -> None:
    item = pod("a")
    for stamps in (item["status"]["containerStatuses"][0]["state"]["running"], item["status"]["conditions"][1]):
        key = "startedAt" if "startedAt" in stamps else "lastTransitionTime"
        stamps[key] = later(stamps[key], set_forward)  # between pulling and starting the container
    known = (await looked((0.0, None), (5.0, PULLING), (10.0, item)))[-1].cold_start
    assert (known is not None) == (set_forward < 600.0)
    assert (await looked((10.0, item)))[-1].cold_start is not None  # who came later cannot know


async def test_the_age_of_an_unready_pod_counts_from_its_readiness_loss() -> None:
    assert (await ages((7200.0, pod("a")), (7205.0, unready()), (7215.0, unready())))[1:] == [0.0, 10.0]


async def test_the_age_of_an_unready_pod_counts_from_its_restart() -> None:
    again = unready(1, "2026-11-21T10:00:20Z")
    assert (await ages((7200.0, pod("a")), (7205.0, unready()), (7220.0, again)))[1:] == [0.0, 0.0]


@pytest.mark.parametrize(("away", "since"), [(5.0, 100.0), (15.0, 100.0), (20.0, 7220.0)])
async def test_a_short_readiness_loss_keeps_the_ready_time(away: float, since: float) -> None:
    views = await looked((100.0, pod("a")), (7200.0, unready()), (7200.0 + away, pod("a")), (7300.0, pod("a")))
    assert [view.since for view in views] == [100.0, 7200.0, since, since]


async def test_a_container_restart_within_a_short_readiness_loss_resets_the_ready_time() -> None:
    again = pod("a")
    again["status"]["containerStatuses"] = unready(1, "2026-11-21T10:00:02Z")["status"]["containerStatuses"]
    views = await looked((100.0, pod("a")), (7200.0, unready()), (7205.0, again))
    assert views[-1].since == 7205.0


async def test_a_loading_engine_is_scraped_and_may_stay_silent() -> None:
    (view,) = await looked((5.0, unready()))
    assert view.phase == "loading" and view.sample is not None
    cluster = deployed(cluster_with())
    cluster.pods = [unready()]
    wall = CREATED + timedelta(seconds=5)
    fleet, _ = await observe(cluster.resource, ObservationState(), at(cluster, Engines(text=None), 5.0, wall))
    assert fleet.observed.pods[0].sample is None and fleet.scrape_failures == 0

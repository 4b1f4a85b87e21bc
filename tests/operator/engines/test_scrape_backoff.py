"""Pods that cannot answer are not called, and pods that do not answer are called ever more rarely."""

import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from sluice_operator.autoscaler.values import EngineSample
from sluice_operator.cluster.client import Endpoint, Object
from sluice_operator.cluster.fleet import ObservedFleet
from sluice_operator.engines.client import AnswerTooLarge, NoAnswer, ScrapeError
from sluice_operator.engines.exposition import parse
from sluice_operator.engines.scrape_backoff import (
    FAILURES_BEFORE_BACKOFF,
    GRACE_SLACK,
    INITIAL_BACKOFF,
    MAX_BACKOFF,
    NO_BACKOFF,
    can_answer,
    is_node_lost,
)
from sluice_operator.reconcile.context import Context
from sluice_operator.reconcile.observation_state import ObservationState
from sluice_operator.reconcile.observe import observe
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.settings import Settings
from tests.operator.fake_cluster import (
    KEY,
    KEY_OF_OPERATOR,
    Clock,
    FakeCluster,
    cluster_with,
    deployed,
    exposition,
    pod,
)

WALL = datetime(2026, 11, 21, 8, tzinfo=UTC)


def conditions(**given: tuple[str, str]) -> list[dict[str, str]]:
    """Conditions as type=(status, reason)."""
    return [
        {"type": kind, "status": status} | ({"reason": reason} if reason else {})
        for kind, (status, reason) in given.items()
    ]


def as_left_by(**given: tuple[str, str]) -> Object:
    item = pod("a")
    item["status"]["conditions"] = conditions(**given)
    return item


LOST = as_left_by(Ready=("False", ""), ContainersReady=("True", ""))  # by the node lifecycle controller


@pytest.mark.parametrize(
    ("item", "lost"),
    [
        (LOST, True),
        (as_left_by(Ready=("Unknown", "NodeStatusUnknown")), True),
        (pod("a", reason="NodeLost"), True),
        (pod("a"), False),
        (as_left_by(Ready=("True", ""), ContainersReady=("True", "")), False),
        (as_left_by(Ready=("False", "ContainersNotReady"), ContainersReady=("False", "ContainersNotReady")), False),
        (as_left_by(Ready=("False", "ReadinessGatesNotReady"), ContainersReady=("True", "")), False),
        (pod("a", ready=False), False),
    ],
    ids=["marked by the node controller", "unknown", "by its reason", "no conditions of containers", "ready", "unready",
         "readiness gate", "new"],
)  # fmt: skip
def test_a_lost_node_is_distinguished_from_a_pod_that_is_not_ready(item: Object, lost: bool) -> None:
    assert is_node_lost(item) is lost
    assert can_answer(item, 0.0, None, 0.0) is not lost


def test_a_pod_that_outlives_its_grace_period_is_not_called() -> None:
    item = pod("a")
    item["metadata"] |= {"deletionTimestamp": "2026-11-21T09:00:00Z", "deletionGracePeriodSeconds": 305}
    assert can_answer(item, 305.0 + GRACE_SLACK, None, 0.0)
    assert not can_answer(item, 305.1 + GRACE_SLACK, None, 0.0)


def test_waits_double_up_to_a_longest() -> None:
    backoff, waits = NO_BACKOFF, []
    for _ in range(FAILURES_BEFORE_BACKOFF + 40):
        backoff = backoff.after_failure("silent", 100.0)
        waits.append(backoff.until - 100.0)
    assert waits[: FAILURES_BEFORE_BACKOFF + 2] == [0.0] * (FAILURES_BEFORE_BACKOFF - 1) + [
        INITIAL_BACKOFF,
        2 * INITIAL_BACKOFF,
        MAX_BACKOFF,
    ]
    assert set(waits[FAILURES_BEFORE_BACKOFF + 2 :]) == {MAX_BACKOFF}


@dataclass
class Engines:
    """Engines by pod; a pod without a text raises its error."""

    texts: dict[str, str] = field(default_factory=dict)
    error: type[ScrapeError] = NoAnswer
    called: list[str] = field(default_factory=list)
    patched: list[str] = field(default_factory=list)

    async def scrape(self, endpoint: Endpoint) -> EngineSample:
        self.called.append(endpoint.pod)
        if endpoint.pod not in self.texts:
            raise self.error(f"pod {endpoint.pod}: silent")
        return parse(self.texts[endpoint.pod])

    async def patch_limits(self, endpoint: Endpoint, *_: Any) -> None:
        self.patched.append(endpoint.pod)


async def look(
    cluster: FakeCluster, engines: Engines, seen: ObservationState, now: float
) -> tuple[ObservedFleet, ObservationState]:
    return await observe(cluster.resource, seen, Context(cluster, engines, clock=lambda: now, wall=lambda: WALL))


async def calls(engines: Engines, item: Object, seconds: int) -> tuple[list[int], ObservedFleet]:
    """When the pod was called, looked at every five seconds."""
    cluster, seen, when = deployed(cluster_with(), item), ObservationState(), []
    for now in range(0, seconds, 5):
        before = len(engines.called)
        fleet, seen = await look(cluster, engines, seen, float(now))
        if len(engines.called) > before:
            when.append(now)
    return when, fleet


@pytest.mark.parametrize("error", [NoAnswer, AnswerTooLarge])
async def test_a_pod_that_times_out_is_called_with_exponential_backoff(error: type[ScrapeError]) -> None:
    when, fleet = await calls(Engines(error=error), pod("a"), 200)
    assert when == [0, 5, 10, 20, 40, 70, 100, 130, 160, 190]
    assert [report.scrape_error for report in fleet.pods] == ["pod a: silent"]  # the condition goes on to name it
    assert fleet.scrape_failures == 0  # of the last look, which did not call


async def test_a_refused_connection_costs_nothing_and_is_tried_in_every_pass() -> None:
    when, _ = await calls(Engines(error=ScrapeError), pod("a"), 60)
    assert when == list(range(0, 60, 5))


async def test_a_pod_on_a_lost_node_is_never_called() -> None:
    when, fleet = await calls(Engines(), LOST, 60)
    assert when == []
    assert fleet.observed.pods[0].sample is None


async def test_a_pod_that_is_deleted_on_a_lost_node_is_called_no_longer_than_it_could_live() -> None:
    item = pod("a")
    item["metadata"] |= {"deletionTimestamp": "2026-11-21T09:00:00Z", "deletionGracePeriodSeconds": 10}
    when, _ = await calls(Engines(error=ScrapeError), item, 120)
    assert when == list(range(0, 45, 5))


async def test_an_answer_or_another_phase_ends_the_backoff() -> None:
    cluster, engines, seen = deployed(cluster_with()), Engines(), ObservationState()
    unready = copy.deepcopy(pod("a"))
    unready["status"]["conditions"] = conditions(Ready=("False", "ContainersNotReady"))
    cluster.pods = [unready]
    for now in range(0, 100, 5):
        _, seen = await look(cluster, engines, seen, float(now))
    assert seen.backoffs["a"].calls > FAILURES_BEFORE_BACKOFF
    cluster.pods = [pod("a")]
    engines.called.clear()
    _, seen = await look(cluster, engines, seen, 100.0)
    assert engines.called == ["a"] and seen.backoffs["a"].calls == 1
    engines.texts["a"] = exposition()
    _, seen = await look(cluster, engines, seen, 105.0)
    assert not seen.backoffs
    cluster.pods = []
    _, seen = await look(cluster, Engines(), seen, 110.0)
    assert not seen.backoffs


async def test_a_pod_that_did_not_answer_is_not_sent_limits_in_the_same_pass() -> None:
    cluster, clock = deployed(cluster_with()), Clock()
    engines = Engines(texts={"a": exposition(), "b": exposition()})
    cluster.pods = [pod("a"), pod("b")]
    settings = Settings(engine_image="engine:1")
    reconciler = Reconciler(Context(cluster, engines, settings, KEY_OF_OPERATOR, clock=clock, wall=clock.wall))
    await reconciler.reconcile(KEY)
    assert sorted(engines.patched) == ["a", "b"]
    del engines.texts["b"]
    engines.patched.clear()
    clock.now += 5.0
    await reconciler.reconcile(KEY)
    assert reconciler.decisions[KEY].bounds and engines.patched == ["a"]

"""How often a resource is written without a change: often for a few, at a bounded rate for a thousand."""

import pytest

from sluice_operator.autoscaler.values import PodPhase, PodView
from sluice_operator.cluster.client import Key
from sluice_operator.cluster.fleet import ObservedFleet, ObservedPod
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.reconcile.state import ResourceState
from tests.operator.fake_cluster import FakeCluster, operator


def intervals(count: int, rate: float) -> list[float]:
    reconciler: Reconciler = operator(FakeCluster())
    keys = [Key(f"team-{number % 7}", f"model-{number}") for number in range(count)]
    reconciler.states = {key: ResourceState("1") for key in keys}
    return [reconciler._interval(key, rate, 30.0) for key in keys]


@pytest.mark.parametrize("rate", [0.4, 1.5])
def test_a_thousand_resources_are_written_at_the_rate_of_the_settings(rate: float) -> None:
    found = intervals(1000, rate)
    assert sum(1 / seconds for seconds in found) == pytest.approx(rate, rel=0.1)
    assert max(found) > 1.5 * min(found)  # they do not stay together


def test_a_few_resources_are_written_as_often_as_the_settings_say() -> None:
    assert set(intervals(10, 1.5)) == {30.0}


@pytest.mark.parametrize(("phase", "most"), [("ready", 2200.0), ("loading", 15.0), ("failed", 15.0)])
def test_children_without_a_watch_return_soon_where_a_pod_may_wait_for_one(phase: PodPhase, most: float) -> None:
    reconciler: Reconciler = operator(FakeCluster())
    keys = [Key("ns", f"model-{number}") for number in range(1000)]
    reconciler.states = {key: ResourceState("1") for key in keys}
    fleet = ObservedFleet(deployment={}, pods=(ObservedPod(PodView("a", phase, since=0.0)),))
    found = [reconciler._unwatched_interval(key, fleet) for key in keys]
    assert max(found) <= most and (min(found) > 1000.0) == (phase == "ready")

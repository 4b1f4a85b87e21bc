"""How often a resource is written without a change: often for a few, at a bounded rate for a thousand."""

import pytest

from sluice_operator.autoscaler.values import PodPhase, PodView
from sluice_operator.cluster.client import Key
from sluice_operator.cluster.fleet import ObservedFleet, ObservedPod
from sluice_operator.reconcile.children.apply import AppliedChildren
from sluice_operator.reconcile.children.token_secrets import MadeSecret, TokenSecrets
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


@pytest.mark.parametrize(
    ("unguarded", "phase", "most"),
    [(1000, "ready", 2200.0), (1000, "loading", 15.0), (1000, "failed", 15.0), (9, "ready", 20.0), (0, "ready", 15.0)],
)
def test_secrets_without_a_sentinel_are_tried_soon_where_they_are_few_or_a_pod_may_wait_for_one(
    unguarded: int, phase: PodPhase, most: float
) -> None:
    reconciler: Reconciler = operator(FakeCluster())
    keys = [Key("ns", f"model-{number}") for number in range(1000)]
    guarded = AppliedChildren(secrets=TokenSecrets("t", {"s": MadeSecret("uid")}))
    reconciler.states = {
        key: ResourceState("1", children=AppliedChildren() if number < unguarded else guarded)
        for number, key in enumerate(keys)
    }
    fleet = ObservedFleet(deployment={}, pods=(ObservedPod(PodView("a", phase, since=0.0)),))
    found = [reconciler._secret_interval(key, fleet) for key in keys]
    assert max(found) <= most and (min(found) > 1000.0) == (most > 1000.0)

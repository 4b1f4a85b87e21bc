"""Evictions, scale-in and termination agree: PodDisruptionBudget, pod-deletion-cost and grace period as one contract.

The two controllers are given by their rules: `disruptions_allowed` is pkg/controller/disruption of Kubernetes, and
`removed` the order of ActivePodsWithRanks in pkg/controller/controller_utils.go.
"""

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sluice import contract
from sluice_operator import render
from sluice_operator.api import parse
from sluice_operator.autoscaler.observation import take_in
from sluice_operator.autoscaler.replicas.scale_in_order import scale_in_candidates
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Observed, PodPhase, PodView
from tests.operator.autoscaler.fleet import Engine, spec
from tests.operator.fake_cluster import manifest

PHASES: tuple[PodPhase, ...] = ("unschedulable", "scheduling", "pulling", "loading", "ready", "failed")


def child(kind: str, **changes: Any) -> dict[str, Any]:
    made = render.children(
        parse(manifest(**changes), strict=False), defaults=render.PodDefaults("engine:1"), replicas=1, token="t"
    )
    return next(each for each in made if each["kind"] == kind)


BUDGET = child("PodDisruptionBudget")["spec"]


def disruptions_allowed(replicas: int, healthy: int) -> int:
    """What the disruption controller writes to `status.disruptionsAllowed`."""
    return max(0, healthy - max(0, replicas - int(BUDGET["maxUnavailable"])))


def may_be_evicted(is_healthy: bool, replicas: int, healthy: int) -> bool:
    """What the API server answers to an Eviction."""
    if not is_healthy and BUDGET["unhealthyPodEvictionPolicy"] == "AlwaysAllow":
        return True
    return disruptions_allowed(replicas, healthy) > 0


@given(st.integers(1, 50))
def test_a_healthy_fleet_of_any_size_always_lets_one_pod_go(replicas: int) -> None:
    """One replica too: a budget that keeps it would block the drain of its node for ever."""
    assert disruptions_allowed(replicas, replicas) == 1


@given(st.integers(1, 50), st.data())
def test_evictions_take_at_most_one_healthy_pod_until_it_is_replaced(replicas: int, data: st.DataObject) -> None:
    begun = healthy = data.draw(st.integers(0, replicas))
    while healthy and may_be_evicted(True, replicas, healthy):
        healthy -= 1
    assert healthy == min(begun, replicas - 1)


@given(st.integers(1, 50), st.data())
def test_a_pod_that_does_not_serve_never_blocks_a_drain(replicas: int, data: st.DataObject) -> None:
    healthy = data.draw(st.integers(0, replicas - 1))
    assert may_be_evicted(False, replicas, healthy)


@given(st.integers(1, 12))
def test_a_drain_of_every_node_in_turn_ends_with_all_but_one_serving_throughout(replicas: int) -> None:
    old, new = replicas, 0
    while old:
        assert may_be_evicted(True, replicas, old + new)
        old -= 1
        assert old + new >= replicas - 1
        assert old == 0 or not may_be_evicted(True, replicas, old + new), "before the replacement is ready"
        new += 1


@dataclass(frozen=True)
class Pod:
    """A pod as the ReplicaSet controller ranks it."""

    view: PodView
    cost: int = 0

    @property
    def rank(self) -> tuple[bool, int, bool, int, float]:
        """Not assigned, then pending, then not ready, then cheap, then young pods first."""
        phase = self.view.phase
        is_assigned = phase not in ("unschedulable", "scheduling")
        is_running = phase in ("loading", "ready", "failed")
        return is_assigned, int(is_running), phase == "ready", self.cost, -self.view.since


def removed(pods: list[Pod], count: int) -> set[str]:
    return {pod.view.name for pod in sorted(pods, key=lambda pod: pod.rank)[:count]}


@st.composite
def fleets(draw: st.DrawFn) -> tuple[PodView, ...]:
    views = []
    for number in range(draw(st.integers(1, 8))):
        phase = draw(st.sampled_from(PHASES))
        inside = draw(st.integers(0, 30))
        is_measured = phase == "ready" and draw(st.booleans())
        sample = Engine(inside=inside).sample() if is_measured else None
        since = float(draw(st.integers(0, 900)))
        views.append(PodView(f"chat-{number}", phase, since, sample, 1000.0 if is_measured else None))
    return tuple(views)


@given(fleets(), st.data())
def test_a_scale_in_removes_the_ready_pods_that_the_operator_has_chosen(
    views: tuple[PodView, ...], data: st.DataObject
) -> None:
    """By the costs, which the operator writes before the count. Pods that do not serve go first, in any order."""
    count = data.draw(st.integers(0, len(views)))
    observed = Observed(pods=views, replicas=len(views))
    snapshot, _ = take_in(spec(), observed, AutoscalerState(), 1000.0)
    chosen = scale_in_candidates(snapshot, count)
    costs = {name: place - len(chosen) for place, name in enumerate(chosen)}
    ready = {view.name for view in views if view.phase == "ready"}
    gone = removed([Pod(view, costs.get(view.name, 0)) for view in views], count)
    assert gone & ready == set(chosen) & ready


@given(fleets())
def test_a_pod_that_is_being_evicted_is_no_candidate_for_the_scale_in(views: tuple[PodView, ...]) -> None:
    draining = PodView("chat-evicted", "draining", 0.0)
    observed = Observed(pods=(*views, draining), replicas=len(views))
    snapshot, _ = take_in(spec(), observed, AutoscalerState(), 1000.0)
    assert "chat-evicted" not in scale_in_candidates(snapshot, len(views) + 1)


@given(st.integers(1, 86_400))
def test_the_kubelet_waits_for_grace_and_drain_and_ten_seconds_more(drain: int) -> None:
    """No preStop hook shortens it: its time would count towards the same period. The engine itself waits for the
    endpoints after SIGTERM."""
    pod = child("Deployment", rollout={"drainSeconds": drain})["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] >= contract.DRAIN_GRACE_SECONDS + drain + 10
    assert f"--drain-seconds={drain}" in pod["containers"][0]["args"]
    assert "lifecycle" not in pod["containers"][0]


def test_the_budget_covers_exactly_the_pods_of_the_deployment() -> None:
    deployment = child("Deployment")["spec"]
    assert BUDGET["selector"] == deployment["selector"]
    assert BUDGET["selector"]["matchLabels"].items() <= deployment["template"]["metadata"]["labels"].items()

"""The Horizontal Pod Autoscaler, KEDA on top of it, and AIBrix' APA, on the examples of their documentation."""

import pytest

from sluice_operator.autoscaler.values import Observed, PodView
from sluice_sim.policies.apa import APA, target
from sluice_sim.policies.hpa.behavior import DEFAULT, Behavior, HpaMemory, Policy, settle
from sluice_sim.policies.hpa.keda import KEDA
from sluice_sim.policies.hpa.metric import ON_KV, ON_QUEUE
from sluice_sim.policies.hpa.ratio import in_total, per_pod
from tests.operator.autoscaler.fleet import spec
from tests.sim.policies.pods import fleet, sample

WIDE = spec(scaling={"maxReplicas": 100})


def test_twice_the_target_doubles_and_half_of_it_halves() -> None:
    """Kubernetes, "Horizontal Pod Autoscaling", algorithm details: 200m over 100m doubles, 50m halves."""
    assert per_pod([0.2] * 4, 0.1, 0, 0, 4) == 8
    assert per_pod([0.05] * 4, 0.1, 0, 0, 4) == 2


def test_within_the_tolerance_of_ten_per_cent_the_count_holds() -> None:
    """Kubernetes, "Horizontal Pod Autoscaling", algorithm details and tolerance: 10 % by default."""
    assert per_pod([0.109] * 7, 0.1, 0, 0, 7) == 7
    assert per_pod([0.091] * 7, 0.1, 0, 0, 7) == 7
    assert per_pod([0.111] * 10, 0.1, 0, 0, 10) == 12
    assert in_total(7.7, 1.0, 7, 7) == 7


def test_own_example_pods_without_metrics_count_as_idle_when_growing_and_as_full_when_shrinking() -> None:
    """Kubernetes, "Horizontal Pod Autoscaling", algorithm details: 0 % of the target in a scale-up, 100 % in a
    scale-down, which dampens both; a ratio that turns around does nothing."""
    assert per_pod([3.0, 3.0], 1.0, 2, 0, 4) == 6  # (3 + 3 + 0 + 0) / 4 = 1.5
    assert per_pod([0.2, 0.2], 1.0, 2, 0, 4) == 3  # (0.2 + 0.2 + 1 + 1) / 4 = 0.6
    assert per_pod([1.5, 1.5], 1.0, 2, 0, 4) == 4  # 0.75 of the target would shrink it


def test_own_example_pods_that_are_not_ready_dampen_a_scale_up_only() -> None:
    """Kubernetes, "Horizontal Pod Autoscaling", algorithm details: not-yet-ready pods count 0 % of a scale-up."""
    assert per_pod([4.0, 4.0], 1.0, 0, 2, 4) == 8
    assert per_pod([0.5, 0.5], 1.0, 0, 2, 4) == 1


def test_without_any_metric_there_is_no_recommendation() -> None:
    """Kubernetes, "Horizontal Pod Autoscaling": a metric that cannot be fetched gives no count, and nothing moves."""
    assert per_pod([], 1.0, 3, 0, 3) is None
    assert settle(HpaMemory(), DEFAULT, 3, None, (1, 9), 0.0)[0] == 3


def test_a_policy_of_ten_per_cent_a_minute_takes_eight_of_eighty_then_eight_of_seventy_two() -> None:
    """Kubernetes, "Horizontal Pod Autoscaling", scaling policies: 80 → 72 → 64 with 4 pods or 10 % per 60 s, the
    larger change; with fewer than 40 it is 4 pods."""
    both = (Policy("Pods", 4, 60), Policy("Percent", 10, 60))
    slow = Behavior(down_window=0.0, down=both)
    memory, count, seen = HpaMemory(), 80, []
    for minute in range(1, 3):
        count, memory = settle(memory, slow, count, 10, (1, 100), 61.0 * minute)
        seen.append(count)
    assert seen == [72, 64]
    assert settle(HpaMemory(), slow, 38, 10, (1, 100), 0.0)[0] == 34


def test_own_example_a_policy_holds_over_its_whole_period() -> None:
    """Kubernetes, "Horizontal Pod Autoscaling", scaling policies: periodSeconds is how far back the policy holds."""
    slow = Behavior(down_window=0.0, down=(Policy("Pods", 4, 60),))
    count, memory = settle(HpaMemory(), slow, 20, 1, (1, 100), 0.0)
    assert count == 16
    count, memory = settle(memory, slow, count, 1, (1, 100), 15.0)
    assert count == 16
    assert settle(memory, slow, count, 1, (1, 100), 61.0)[0] == 12


def test_by_default_it_doubles_or_adds_four_in_fifteen_seconds() -> None:
    """Kubernetes, "Horizontal Pod Autoscaling", default behavior: 100 % or 4 pods per 15 s, whichever is more."""
    assert settle(HpaMemory(), DEFAULT, 1, 50, (1, 100), 0.0)[0] == 5
    assert settle(HpaMemory(), DEFAULT, 10, 50, (1, 100), 0.0)[0] == 20


def test_own_example_it_shrinks_to_the_most_that_was_recommended_in_five_minutes() -> None:
    """Kubernetes, "Horizontal Pod Autoscaling", stabilization window: the highest of the past 300 s."""
    memory, count = HpaMemory(), 6
    for now, recommended in ((0.0, 6), (60.0, 2), (120.0, 4), (180.0, 2)):
        count, memory = settle(memory, DEFAULT, count, recommended, (1, 9), now)
        assert count == 6
    count, memory = settle(memory, DEFAULT, count, 2, (1, 9), 301.0)
    assert count == 4  # the 6 has left the window, the 4 has not
    assert settle(memory, DEFAULT, count, 2, (1, 9), 421.0)[0] == 2


def test_own_example_the_law_runs_every_fifteen_seconds() -> None:
    law, memory = ON_QUEUE.default(), ON_QUEUE.default().initial()
    first, memory = law.decide(WIDE, fleet([sample(waiting=10)] * 2), memory, 0.0)
    assert first.replicas == 4
    held, memory = law.decide(WIDE, fleet([sample(waiting=90)] * 4, 10.0), memory, 10.0)
    assert held.replicas == 4
    assert law.decide(WIDE, fleet([sample(waiting=90)] * 4, 15.0), memory, 15.0)[0].replicas == 8
    assert first.reasons[0].sentence == "2 → 4 replicas: 10 waiting requests per replica, target 5."
    assert first.bounds == ()


def test_own_example_a_loading_pod_dampens_the_scale_up_of_a_pods_metric() -> None:
    law = ON_KV.make(0.5)
    assert law.decide(WIDE, fleet([sample(kv_occupancy=1.0)] * 2), law.initial(), 0.0)[0].replicas == 4
    loading = fleet([sample(kv_occupancy=1.0)] * 2, loading=2)
    assert law.decide(WIDE, loading, law.initial(), 0.0)[0].replicas == 4


def test_own_example_keda_shares_the_sum_of_the_queue_among_the_replicas() -> None:
    """KEDA, "Scaling deployments": threshold as AverageValue, so ceil(value / threshold); threshold 5 as in the
    chart of vLLM production-stack."""
    law = KEDA.default()
    observed = fleet([sample(waiting=30), sample(waiting=11)])
    assert law.decide(WIDE, observed, law.initial(), 0.0)[0].replicas == 6  # 41 / 5 = 8.2, at most 4 more in 15 s
    assert law.decide(WIDE, fleet([sample(waiting=11)] * 3), law.initial(), 0.0)[0].replicas == 7


def test_own_example_keda_holds_when_the_query_finds_nothing() -> None:
    law = KEDA.default()
    assert law.decide(WIDE, fleet([None, None]), law.initial(), 0.0)[0].replicas == 2


def test_own_example_keda_counts_the_queues_of_draining_pods() -> None:
    law = KEDA.default()
    leaving = PodView("old", "draining", 0.0, sample(waiting=20), 0.0)
    observed = Observed((*fleet([sample()]).pods, leaving), 1)
    assert law.decide(WIDE, observed, law.initial(), 0.0)[0].replicas == 4


@pytest.mark.parametrize(
    ("pods", "use", "up", "down", "expected"),
    [
        (2, 45.0, 2.0, 2.0, 3),
        (2, 35.0, 2.0, 2.0, 3),
        (2, 90.0, 2.0, 2.0, 4),
        (2, 90.0, 2.5, 2.0, 5),
        (6, 20.0, 2.0, 2.0, 4),
        (6, 18.0, 2.0, 2.0, 4),
        (6, 10.0, 2.0, 2.0, 3),
        (6, 5.0, 2.0, 2.5, 2),
        (2, 33.0, 2.0, 2.0, 2),
        (2, 27.0, 2.0, 2.0, 2),
    ],
)
def test_apa_follows_the_ratio_at_most_doubling_and_halving(
    pods: int, use: float, up: float, down: float, expected: int
) -> None:
    """vllm-project/aibrix, pkg/controller/podautoscaler/algorithm/apa_test.go: target 30, tolerances 0.1."""
    assert target(pods, use, 30.0, up, down) == expected


def test_own_example_apa_waits_five_minutes_before_it_shrinks() -> None:
    """AIBrix documentation, metric-based autoscaling: scale-down-cooldown-window 300 s, scale-up 0 s."""
    law = APA.default()
    memory = law.initial()
    grown, memory = law.decide(WIDE, fleet([sample(kv_occupancy=0.9)] * 4), memory, 0.0)
    assert grown.replicas == 8
    for now in (30.0, 150.0, 299.0):
        held, memory = law.decide(WIDE, fleet([sample(kv_occupancy=0.1)] * 8, now), memory, now)
        assert held.replicas == 8
    shrunk, _ = law.decide(WIDE, fleet([sample(kv_occupancy=0.1)] * 8, 320.0), memory, 320.0)
    assert shrunk.replicas == 4

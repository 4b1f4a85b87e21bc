"""Knative's pod autoscaler on the cases of its own tests: knative/serving, pkg/autoscaler/scaling/autoscaler_test.go."""

import pytest

from sluice_sim.policies.kpa import KPA, KpaMemory, scale
from tests.operator.autoscaler.fleet import spec
from tests.sim.policies.pods import fleet, sample

CALM = KpaMemory(started=True)


@pytest.mark.parametrize(
    ("stable", "panic", "target", "ready", "up", "down", "expected"),
    [
        (50, 10, 10, 1, 10.0, 10.0, 5),  # TestAutoscalerStableModeIncreaseWithConcurrencyDefault
        (100, 10, 10, 1, 10.0, 10.0, 10),
        (100, 100, 10, 8, 10.0, 10.0, 10),  # TestAutoscalerStableModeDecrease
        (50, 50, 10, 8, 10.0, 10.0, 5),
        (50, 50, 10, 5, 10.0, 10.0, 5),  # AutoscalerStableModeNoChangeAlreadyScaled
        (3, 3.1, 1, 2, 1.1, 10.0, 3),  # AutoscalerStableModeIncreaseWithSmallScaleUpRate
        (1, 1, 10, 100, 10.0, 1.1, 90),  # AutoscalerStableModeDecreaseWithSmallScaleDownRate
        (50, 100, 10, 1, 10.0, 10.0, 10),  # AutoscalerPanicModeDoublePodCount
        (1000, 1001, 10, 1, 10.0, 10.0, 10),  # TestAutoscalerRateLimitScaleUp
        (1000, 1001, 10, 10, 10.0, 10.0, 100),
        (1, 1, 10, 100, 10.0, 10.0, 10),  # TestAutoscalerRateLimitScaleDown
        (1000, 888, 10, 0, 10.0, 10.0, 10),  # TestAutoscalerUseOnePodAsMinimumIfEndpointsNotFound
    ],
)
def test_the_counts_match_the_table_of_knatives_own_test(
    stable: float, panic: float, target: float, ready: int, up: float, down: float, expected: int
) -> None:
    """knative/serving, autoscaler_test.go: the cases named beside the numbers."""
    assert scale(CALM, stable, panic, target, ready, 0.0, up, down)[0] == expected


def test_in_panic_it_takes_the_larger_of_both_windows() -> None:
    """knative/serving, autoscaler_test.go: AutoscalerPanicStableLargerThanPanic and …LessThanPanic."""
    panicking = KpaMemory(True, (), -5.0, 5)
    assert scale(panicking, 50, 30, 1, 5, 0.0, 10.0, 10.0)[0] == 50
    assert scale(panicking, 20, 30, 1, 5, 0.0, 10.0, 10.0)[0] == 30


def test_it_does_not_go_down_while_it_panics_and_does_a_stable_window_later() -> None:
    """knative/serving, autoscaler_test.go: TestAutoscalerPanicThenUnPanicScaleDown."""
    count, memory = scale(CALM, 100, 100, 10, 1, -1.0, 10.0, 10.0)
    assert count == 10
    count, memory = scale(memory, 100, 1000, 10, 10, 0.0, 10.0, 10.0)
    assert count == 100
    count, memory = scale(memory, 1, 1, 10, 10, 30.0, 10.0, 10.0)
    assert count == 100
    assert scale(memory, 1, 1, 10, 10, 61.0, 10.0, 10.0)[0] == 1


def test_a_slow_increase_ends_the_panic_and_a_surge_extends_it() -> None:
    """knative/serving, autoscaler_test.go: TestAutoscalerUnpanicAfterSlowIncrease, TestAutoscalerExtendPanicWindow."""
    count, first = scale(CALM, 11, 25, 1, 10, 0.0, 10.0, 10.0)
    assert (count, first.panic_at) == (25, 0.0)
    count, slow = scale(first, 30, 41, 1, 40, 30.0, 10.0, 10.0)
    assert (count, slow.panic_at) == (41, 0.0)
    count, over = scale(slow, 50, 56, 1, 55, 62.0, 10.0, 10.0)
    assert (count, over.panic_at) == (50, None)
    count, surge = scale(first, 30, 80, 1, 40, 30.0, 10.0, 10.0)
    assert (count, surge.panic_at) == (80, 30.0)


def test_exponential_growth_is_tracked() -> None:
    """knative/serving, autoscaler_test.go: TestAutoscalerPanicModeExponentialTrackAndStabilize."""
    memory, ready = CALM, 1
    for inside in (6, 36, 216, 1296, 1296):
        ready, memory = scale(memory, inside, inside, 1, ready, 0.0, 10.0, 10.0)
        assert ready == inside


def test_with_more_than_one_pod_it_starts_in_panic() -> None:
    """knative/serving, autoscaler_test.go: TestStartInPanicMode: a restart must not shrink the workload."""
    law, wide = KPA.default(), spec(scaling={"maxReplicas": 50})
    held, memory = law.decide(wide, fleet([sample()] * 3), law.initial(), 0.0)
    assert (held.replicas, memory.panic_at, memory.panic_most) == (3, 0.0, 3)
    _, alone = law.decide(wide, fleet([sample()]), law.initial(), 0.0)
    assert alone.panic_at is None


def test_without_data_the_count_holds() -> None:
    """knative/serving, autoscaler_test.go: TestAutoscalerNoDataNoAutoscale."""
    law = KPA.default()
    assert law.decide(spec(), fleet([None, None]), law.initial(), 0.0)[0].replicas == 2


def test_own_example_utilisation_is_seventy_per_cent_of_the_target() -> None:
    law, wide = KPA.make(10.0), spec(scaling={"maxReplicas": 50})
    inside = [sample(running=8, waiting=6), sample(running=7)]
    assert law.decide(wide, fleet(inside), law.initial(), 0.0)[0].replicas == 3  # 21 / 7
    assert law.decide(wide, fleet([*inside, None]), law.initial(), 0.0)[0].replicas == 5  # 31.5 / 7: as the others


def test_own_example_the_stable_window_is_a_minute_and_the_panic_window_six_seconds() -> None:
    law, wide = KPA.make(10.0), spec(scaling={"maxReplicas": 50})
    memory = law.initial()
    for now in range(0, 60, 5):
        decision, memory = law.decide(wide, fleet([sample(running=7)], now), memory, float(now))
        assert decision.replicas == 1
    # The mean is 7·11/12 + 21/12; six seconds see (7 + 21) / 2, twice what one pod should hold: panic.
    decision, memory = law.decide(wide, fleet([sample(running=21)], 60.0), memory, 60.0)
    assert (decision.replicas, memory.panic_at) == (2, 60.0)

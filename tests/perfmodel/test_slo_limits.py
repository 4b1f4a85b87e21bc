"""The running and waiting requests of one replica: a worked example per bound, and a law that n* obeys."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_perfmodel.slo_limits import Replica, ServiceConditions, Targets, queue_limit, slo_concurrency
from sluice_perfmodel.step_time import StepTimeModel
from sluice_perfmodel.workload import Work, throughput, token_seconds

MODEL = StepTimeModel(base=0.03, prefill_token=0.0002, sequence=0.004, kv_token=2e-6, steps=1000)
WORK = Work(output=50, uncached=100)
REPLICA = Replica(MODEL, kv_tokens=100_000, max_concurrency=256)
TARGETS = Targets(ttft=2.0, itl=0.1)
CONDITIONS = ServiceConditions(REPLICA, WORK, TARGETS)


def of(replica: Replica, targets: Targets = TARGETS) -> int:
    """n* of this replica."""
    return slo_concurrency(ServiceConditions(replica, WORK, targets))


def test_seconds_per_token_equal_the_formula() -> None:
    # 0.03 + 10 · (0.004 + 2e-6 · 125 + 100 · 0.0002 / 50) = 0.03 + 10 · 0.00465
    assert token_seconds(MODEL, WORK, 10) == pytest.approx(0.0765)
    assert throughput(MODEL, WORK, 10) == pytest.approx(10 / (50 * 0.0765))


def test_the_inter_token_target_bounds_the_running_requests() -> None:
    assert slo_concurrency(CONDITIONS) == 15
    assert token_seconds(MODEL, WORK, 15) <= 0.1 < token_seconds(MODEL, WORK, 16)


def test_the_margin_is_kept_between_the_mean_and_the_target() -> None:
    assert slo_concurrency(replace(CONDITIONS, margin=1.15)) == 12
    assert token_seconds(MODEL, WORK, 12) <= 0.1 / 1.15 < token_seconds(MODEL, WORK, 13)


def test_kv_memory_bounds_the_running_requests() -> None:
    assert of(replace(REPLICA, kv_tokens=1_000)) == 8
    assert 8 * WORK.context <= 1_000 < 9 * WORK.context


def test_the_configured_bounds_hold() -> None:
    assert of(replace(REPLICA, max_concurrency=4)) == 4
    assert of(replace(REPLICA, min_concurrency=20)) == 20


def test_a_target_below_one_step_leaves_the_configured_minimum() -> None:
    unreachable = replace(TARGETS, itl=0.02)
    assert of(REPLICA, unreachable) == 1
    assert of(replace(REPLICA, min_concurrency=3), unreachable) == 3


def test_the_queue_limit_is_what_is_served_in_time_and_one_step_of_arrivals_at_least() -> None:
    assert queue_limit(3.3, 10, 0.1) == 33
    assert queue_limit(3.3, 0, 0.1) == 2
    assert queue_limit(0.0, 10, 0.1) == 1


@given(
    output=st.floats(1, 2_000),
    uncached=st.floats(0, 20_000),
    itl=st.floats(0.001, 10),
    kv_tokens=st.floats(16, 1e6),
)
def test_a_looser_target_allows_no_fewer_running_requests(
    output: float, uncached: float, itl: float, kv_tokens: float
) -> None:
    work, replica = Work(output, uncached), replace(REPLICA, kv_tokens=kv_tokens)
    tight, loose = (
        slo_concurrency(ServiceConditions(replica, work, Targets(2.0, target))) for target in (itl, 2 * itl)
    )
    assert 1 <= tight <= loose <= 256

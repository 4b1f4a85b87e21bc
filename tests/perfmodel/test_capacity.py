"""One replica's capacity: a worked example per constraint, and the laws that any capacity obeys."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_perfmodel.capacity import (
    Replica,
    ServiceConditions,
    Targets,
    Traffic,
    Work,
    capacity,
    concurrency_at,
    first_token_seconds,
    queue_limit,
    replicas_needed,
    sustained_rate,
    throughput,
    token_seconds,
)
from sluice_perfmodel.queueing import SlotQueue, spread_of
from sluice_perfmodel.step_time import StepTimeModel

MODEL = StepTimeModel(base=0.03, prefill_token=0.0002, sequence=0.004, kv_token=2e-6, steps=1000)
WORK = Work(output=50, uncached=100)
REPLICA = Replica(MODEL, kv_tokens=100_000, kv_share=0.8, max_concurrency=256)
TARGETS = Targets(ttft=2.0, itl=0.1)
CONDITIONS = ServiceConditions(REPLICA, WORK, TARGETS)


def test_seconds_per_token_equal_the_formula() -> None:
    # 0.03 + 10 · (0.004 + 2e-6 · 125 + 100 · 0.0002 / 50) = 0.03 + 10 · 0.00465
    assert token_seconds(MODEL, WORK, 10) == pytest.approx(0.0765)
    assert throughput(MODEL, WORK, 10) == pytest.approx(10 / (50 * 0.0765))


def test_the_steady_state_is_the_inverse_of_throughput() -> None:
    assert concurrency_at(MODEL, WORK, throughput(MODEL, WORK, 7), 256) == pytest.approx(7)
    assert concurrency_at(MODEL, WORK, 1_000, 256) == 256


def test_inter_token_latency_binds() -> None:
    held = capacity(CONDITIONS)
    assert (held.binding, held.concurrency) == ("InterTokenLatency", 15)
    assert held.itl <= 0.1 < token_seconds(MODEL, WORK, 16)


def test_kv_memory_binds() -> None:
    held = capacity(replace(CONDITIONS, replica=replace(REPLICA, kv_tokens=1_000)))
    assert (held.binding, held.concurrency) == ("KVOccupancy", 8)
    assert 8 * WORK.context <= 1_000 < 9 * WORK.context  # at a peak
    assert held.kv_occupancy <= 0.8  # on the mean


def test_time_to_first_token_binds() -> None:
    held = capacity(replace(CONDITIONS, targets=replace(TARGETS, ttft=0.15)))
    assert held.binding == "TimeToFirstToken"
    assert held.ttft <= 0.15
    assert held.rate < capacity(CONDITIONS).rate


def test_the_configured_limit_binds() -> None:
    assert capacity(replace(CONDITIONS, replica=replace(REPLICA, max_concurrency=4))).binding == "ConcurrencyLimit"


def test_bursts_raise_the_time_to_first_token() -> None:
    rate = 0.9 * throughput(MODEL, WORK, 15)
    bursty, poisson = SlotQueue(MODEL, WORK, 15, spread_of(5.0)), SlotQueue(MODEL, WORK, 15, spread_of(1.0))
    assert first_token_seconds(bursty, rate, 0.99) > first_token_seconds(poisson, rate, 0.99)


def test_the_wait_agrees_with_erlang_c_where_service_does_not_depend_on_the_batch() -> None:
    # base 0, 0.1 s per sequence and token would be one server; μ(k) = k·μ needs S constant: sequence 0.
    constant = StepTimeModel(base=0.1)
    work = Work(output=10, uncached=0)  # one second of service, four places, 3 Erlang: C(4, 3) = 0.5094
    wait = first_token_seconds(SlotQueue(constant, work, 4), 3.0, 0.9)
    assert wait == pytest.approx(0.15 + math.log(0.5094 / 0.1), rel=1e-3)


def test_the_queue_limit_is_what_is_served_in_time_and_one_step_of_arrivals_at_least() -> None:
    assert queue_limit(3.3, 10, 0.1) == 33
    assert queue_limit(3.3, 0, 0.1) == 2
    assert queue_limit(0.0, 10, 0.1) == 1


@given(
    output=st.floats(1, 2_000),
    uncached=st.floats(0, 20_000),
    itl=st.floats(0.001, 10),
    ttft=st.floats(0.001, 100),
    kv_tokens=st.floats(16, 1e6),
)
def test_capacity_is_positive_and_grows_with_looser_targets(
    output: float, uncached: float, itl: float, ttft: float, kv_tokens: float
) -> None:
    work, replica = Work(output, uncached), replace(REPLICA, kv_tokens=kv_tokens)
    tight = capacity(ServiceConditions(replica, work, Targets(ttft, itl)))
    loose = capacity(ServiceConditions(replica, work, Targets(ttft, itl * 2)))
    assert 1 <= tight.concurrency <= loose.concurrency <= 256
    assert tight.rate > 0


@given(
    count=st.integers(1, 40),
    attained=st.floats(0.8, 0.999),
    sheds=st.booleans(),
    burstiness=st.floats(0.5, 5.0),
    unevenness=st.floats(0.05, 1.0),
)
def test_one_more_replica_is_needed_above_the_sustained_rate(
    count: int, attained: float, sheds: bool, burstiness: float, unevenness: float
) -> None:
    targets = replace(TARGETS, attainment=attained)
    conditions = ServiceConditions(replace(REPLICA, sheds=sheds), WORK, targets)
    traffic = Traffic(burstiness, unevenness)
    rate = sustained_rate(conditions, count, traffic)
    step = count * throughput(MODEL, WORK, 15) / attained / 2**9
    assert replicas_needed(conditions, rate * 0.999, traffic)[0] <= count
    assert replicas_needed(conditions, rate * 1.001 + 2 * step, traffic)[0] > count

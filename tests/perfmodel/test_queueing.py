"""Waits before the first token agree with closed forms and with the plain sum of the chain."""

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
    attainment,
    replicas_needed,
    split_burstiness,
)
from sluice_perfmodel.queueing import (
    SlotQueue,
    late_probability,
    prefill_time_share,
    rejection_probability,
    waiting_probability,
)
from sluice_perfmodel.step_time import StepTimeModel
from sluice_perfmodel.workload import Work, throughput

MODEL = StepTimeModel(base=0.03, prefill_token=0.0002, sequence=0.004, kv_token=2e-6, steps=1000)
LIGHT = StepTimeModel(base=0.02, prefill_token=2e-6, sequence=1e-6, steps=1000)
WORK = Work(output=50, uncached=100)
TARGETS = Targets(ttft=2.0, itl=0.1)
REPLICA = Replica(MODEL, kv_tokens=100_000, kv_share=0.8, max_concurrency=256)
CONDITIONS = ServiceConditions(REPLICA, WORK, TARGETS)


def plain(model: StepTimeModel, work: Work, slots: int, rate: float) -> float:
    """The birth-death chain, term by term, in logarithms."""
    logs = [0.0]
    for k in range(1, slots + 1):
        logs.append(logs[-1] + math.log(rate / throughput(model, work, k)))
    full = 1.0 / (1.0 - rate / throughput(model, work, slots))
    top = max(logs)
    rest = math.fsum(math.exp(value - top) for value in logs[:-1])
    last = math.exp(logs[-1] - top) * full
    return last / (rest + last)


@pytest.mark.parametrize("slots", [1, 4, 15, 256, 257, 1000, 4096])
@pytest.mark.parametrize("load", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("model", [MODEL, LIGHT])
def test_the_waiting_probability_equals_that_of_the_birth_death_chain(
    model: StepTimeModel, slots: int, load: float
) -> None:
    rate = load * throughput(model, WORK, slots)
    assert waiting_probability(SlotQueue(model, WORK, slots), rate) == pytest.approx(
        plain(model, WORK, slots, rate), rel=0.02, abs=1e-6
    )


def test_bursts_raise_the_waiting_probability() -> None:
    rate = 0.8 * throughput(MODEL, WORK, 15)
    shares = [waiting_probability(SlotQueue(MODEL, WORK, 15, spread), rate) for spread in (1.0, 2.0, 5.0)]
    assert shares == sorted(shares) and shares[2] > 1.5 * shares[0]


def test_long_prompts_delay_other_prompts_although_slots_are_free() -> None:
    long = Work(output=50, uncached=20_000)
    rate = 0.12  # four seconds of prompt each: half of every second
    assert waiting_probability(SlotQueue(MODEL, long, 256), rate) < 0.5
    assert late_probability(SlotQueue(MODEL, long, 256), rate, 5.0, 0.9) > 0.3


def test_prefill_gets_the_time_that_decoding_leaves_of_the_inter_token_target() -> None:
    idle, half, full = (prefill_time_share(MODEL, WORK, n, 0.1, 2048) for n in (0.0, 8.0, 16.0))
    assert idle > half > full
    assert half == pytest.approx((0.1 - (0.03 + 8 * 0.00425)) / 0.1, abs=1e-3)


@given(rate=st.floats(0.1, 60), bursts=st.floats(1, 20), ttft=st.floats(0.2, 10))
def test_replicas_needed_is_the_smallest_number_that_meets_the_target(rate: float, bursts: float, ttft: float) -> None:
    conditions, traffic = ServiceConditions(REPLICA, WORK, Targets(ttft=ttft, itl=0.1)), Traffic(bursts)
    count, reached = replicas_needed(conditions, rate, traffic)

    def good(replicas: int) -> float:
        return attainment(conditions, rate / replicas, split_burstiness(traffic, replicas))

    assert reached == pytest.approx(good(count))
    if ttft > 1.0:
        assert reached >= 0.985  # of what an idle replica reaches, here nearly all
        assert count == 1 or good(count - 1) < 0.99 or rate / (count - 1) > 0.95 * throughput(MODEL, WORK, 15)


def test_a_target_that_no_number_of_replicas_meets_adds_none() -> None:
    count, reached = replicas_needed(ServiceConditions(REPLICA, WORK, Targets(ttft=0.01, itl=0.1)), 6.0, Traffic())
    assert count <= 4 and reached == 0.0


def test_a_split_over_many_replicas_reduces_burstiness() -> None:
    assert split_burstiness(Traffic(5.0), 1) == 5.0
    assert split_burstiness(Traffic(5.0), 4) == 2.0


@pytest.mark.parametrize("rate", [0.0, 5e-324, 1e-300, 1e-12])
def test_without_load_no_request_waits(rate: float) -> None:
    assert waiting_probability(SlotQueue(MODEL, WORK, 15), rate) == pytest.approx(0.0, abs=1e-9)
    assert waiting_probability(SlotQueue(LIGHT, WORK, 4096), rate) == pytest.approx(0.0, abs=1e-9)


def test_an_even_split_needs_fewer_replicas_than_a_random_split() -> None:
    assert split_burstiness(Traffic(unevenness=1.0), 8) == pytest.approx(1.0)
    assert split_burstiness(Traffic(unevenness=0.05), 8) < 0.0
    evenly, _ = replicas_needed(CONDITIONS, 40.0, Traffic(unevenness=0.05))
    randomly, _ = replicas_needed(CONDITIONS, 40.0, Traffic(unevenness=1.0))
    assert evenly < randomly


@pytest.mark.parametrize("load", [0.3, 0.8, 1.0, 1.25, 3.0])
@pytest.mark.parametrize("patience", [0.1, 1.0, 10.0])
def test_one_slot_with_a_deadline_rejects_as_the_closed_form_says(load: float, patience: float) -> None:
    """M/M/1+D: the loss is (1 − ρ)·ρ·E / (1 − ρ²·E) with E = e^(−(μ − λ)·D) (Barrer, 1957)."""
    model, work = StepTimeModel(base=0.5, prefill_token=0.0, sequence=0.0, kv_token=0.0, steps=1000), Work(1.0, 1.0)
    left = math.exp(-(2.0 - 2.0 * load) * patience)
    closed = patience * 2.0 + 1.0 if load == 1.0 else (1.0 - load**2 * left) / ((1.0 - load) * load * left)
    lost = rejection_probability(SlotQueue(model, work, 1), 2.0 * load, patience, 1.0)
    assert lost == pytest.approx(1.0 / (closed + 1.0) if load == 1.0 else 1.0 / closed, rel=1e-6)


@given(load=st.floats(0.01, 50.0), seconds=st.floats(0.001, 100.0), bursts=st.floats(0.1, 20.0))
def test_load_shedding_rejects_at_least_the_surplus_and_fewer_than_would_be_late(
    load: float, seconds: float, bursts: float
) -> None:
    rate = load * throughput(MODEL, WORK, 15)
    queue = SlotQueue(MODEL, WORK, 15, bursts)
    lost = rejection_probability(queue, rate, seconds, 0.9)
    assert 0.0 <= lost <= 1.0
    assert lost >= 1.0 - 1.0 / load - 1e-9
    assert lost <= late_probability(queue, rate, seconds, 0.9) + 1e-9


def test_load_shedding_needs_fewer_replicas() -> None:
    fewer, reached = replicas_needed(replace(CONDITIONS, replica=replace(REPLICA, sheds=True)), 40.0, Traffic())
    assert reached >= 0.99 * 0.999
    assert fewer < replicas_needed(CONDITIONS, 40.0, Traffic())[0]

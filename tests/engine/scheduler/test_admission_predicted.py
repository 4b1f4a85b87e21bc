"""Admission by the predicted remaining output, and rejection of requests whose deadline cannot be met."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Rejection, Scheduler, SchedulerConfig
from sluice_engine.scheduler.admission.kv_forecast import predicted_peak
from sluice_engine.scheduler.admission.output_lengths import (
    MAX_LENGTHS,
    MAX_TENANTS,
    MIN_LENGTHS,
    MIN_QUANTILE,
    OutputLengths,
    quantile_of,
)
from sluice_perfmodel.step_time import StepTimeModel

MODEL = StepTimeModel(base=0.01, prefill_token=1e-4, sequence=1e-4, steps=1000)


def request(name: str, prompt: int = 16, max_tokens: int = 400, written: int = 0, **fields: object) -> Request:
    made = Request(name, list(range(1000, 1000 + prompt)), max_tokens, 0.0, **fields)  # type: ignore[arg-type]
    made.known += [1] * written
    return made


def engine(
    blocks: int = 100, seqs: int = 32, policy: str = "fcfs", predicted: bool = True, **bounds: float
) -> Scheduler:
    config = SchedulerConfig(
        num_blocks=blocks,
        max_model_length=512,
        max_num_seqs=seqs,
        prefix_cache=False,
        policy=policy,
        predicted_admission=predicted,
    )
    values: dict[str, float] = {"concurrency_max": seqs, "max_batched_tokens": 2048}
    return Scheduler(config, LimitController(Limits(**(values | bounds))))  # type: ignore[arg-type]


def step(scheduler: Scheduler, now: float = 0.0, model: StepTimeModel | None = None) -> int:
    plan = scheduler.plan(now, model)
    assert plan is not None
    scheduler.settle(plan, [1] * sum(row.samples for row in plan.rows), now)
    scheduler.check()
    return len(plan.joins)


# --- how much a request will still write -----------------------------------------------------------------------


def test_nothing_is_predicted_before_enough_requests_have_ended() -> None:
    lengths = OutputLengths()
    for _ in range(MIN_LENGTHS - 1):
        lengths.add("", 100)
    assert lengths.remaining(request("a")) is None
    lengths.add("", 100)
    assert lengths.remaining(request("a")) == 100


def test_the_output_so_far_conditions_the_predicted_remaining_length() -> None:
    lengths = OutputLengths()
    for length in [20] * 90 + [300] * 10:
        lengths.add("", length)
    assert lengths.remaining(request("new")) == 20
    assert lengths.remaining(request("going on", written=21)) == 279
    assert lengths.remaining(request("longer than any", written=350, max_tokens=10_000)) == 350  # doubles


def test_max_tokens_is_the_cap_and_one_token_the_floor() -> None:
    lengths = OutputLengths()
    for _ in range(100):
        lengths.add("", 200)
    assert lengths.remaining(request("short", max_tokens=50)) == 50
    assert lengths.remaining(request("at the end", max_tokens=60, written=59)) == 1


def test_a_tenants_own_lengths_count_once_there_are_enough() -> None:
    lengths = OutputLengths()
    for _ in range(100):
        lengths.add("terse", 10)
        lengths.add("wordy", 300)
    assert lengths.remaining(request("a", tenant="terse")) == 10
    assert lengths.remaining(request("b", tenant="wordy")) == 300
    assert lengths.remaining(request("c", tenant="new")) in (10, 300)


def test_history_is_bounded_in_lengths_and_tenants_and_forgets_the_oldest() -> None:
    lengths = OutputLengths()
    for _ in range(MAX_LENGTHS):
        lengths.add("", 10)
    for _ in range(MAX_LENGTHS):
        lengths.add("", 90)
    assert lengths.remaining(request("a")) == 90
    for index in range(3 * MAX_TENANTS):
        lengths.add(str(index), 5)
    assert len(lengths._tenants) == MAX_TENANTS


def test_requests_that_run_together_are_a_stratified_sample() -> None:
    for first in (0, 17, 1000):
        found = sorted(quantile_of(request(str(order), order=order)) for order in range(first, first + 20))
        for index, quantile in enumerate(found):
            assert quantile == pytest.approx(MIN_QUANTILE + (1 - MIN_QUANTILE) * (index + 0.5) / 20, abs=0.05)


# --- the peak --------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 200)), min_size=1, max_size=12))
def test_the_peak_equals_a_simulation_of_the_remaining_steps(requests: list[tuple[int, int]]) -> None:
    tallest = max(
        sum(context + at for remaining, context in requests if remaining >= at)
        for at in range(1, max(remaining for remaining, _ in requests) + 1)
    )
    count = len(requests)
    assert tallest <= predicted_peak(requests, 1) <= tallest + count / 2 + 1e-9


def test_a_request_that_would_raise_the_peak_above_the_pool_waits() -> None:
    scheduler = engine(blocks=102)
    for _ in range(MIN_LENGTHS):
        scheduler.state.lengths.add("", 300)
    for index in range(20):
        scheduler.submit(request(str(index)))
    assert step(scheduler) == 5  # each will hold 316 tokens, and half a block is empty: 20.25 blocks
    optimistic = engine(blocks=102, predicted=False)
    for index in range(20):
        optimistic.submit(request(str(index)))
    assert step(optimistic) == 20


def test_the_watermark_bounds_the_peak() -> None:
    scheduler = engine(blocks=100, kv_watermark=0.5)
    for _ in range(MIN_LENGTHS):
        scheduler.state.lengths.add("", 300)
    for index in range(20):
        scheduler.submit(request(str(index)))
    assert step(scheduler) == 2


def test_the_only_request_always_starts() -> None:
    scheduler = engine(blocks=32, kv_watermark=0.1)
    for _ in range(MIN_LENGTHS):
        scheduler.state.lengths.add("", 10_000)
    scheduler.submit(request("a"))
    assert step(scheduler) == 1


@pytest.mark.parametrize("seed", range(2))
def test_prediction_prevents_most_preemptions(seed: int) -> None:
    def preemptions(predicted: bool) -> int:
        dice = random.Random(seed)
        scheduler = engine(blocks=120, seqs=64, predicted=predicted)
        for number in range(3000):
            if len(scheduler.waiting) < 4:
                scheduler.submit(
                    request(str(number), dice.randint(1, 60), min(400, int(dice.lognormvariate(4, 1)) + 1))
                )
            step(scheduler, float(number))
        return scheduler.preemptions

    assert preemptions(True) <= preemptions(False) / 3


# --- load shedding ------------------------------------------------------------------------------------------


def busy(policy: str = "fcfs") -> Scheduler:
    """Ten prompts of 400 tokens wait; a step of 2,048 of them takes 0.21 s: about 0.4 s of work."""
    scheduler = engine(seqs=256, blocks=2000, policy=policy)
    scheduler.submit(request("first", max_tokens=1))
    step(scheduler, model=MODEL)
    for index in range(10):
        scheduler.submit(request(str(index), 400, ttft_target=60.0))
    return scheduler


def test_a_request_whose_deadline_cannot_be_met_is_rejected_with_the_predicted_wait() -> None:
    rejection = busy().submit(request("tight", 100, ttft_target=0.2))
    assert isinstance(rejection, Rejection) and rejection.reason == "slo_unreachable"
    assert 0.4 < rejection.retry_after < 0.5
    assert "0.2 s" in rejection.message


def test_a_request_whose_deadline_can_be_met_is_queued() -> None:
    assert busy().submit(request("can wait", 100, ttft_target=1.0)) is None


def test_a_request_without_its_own_deadline_is_never_rejected_for_one() -> None:
    scheduler = busy()
    scheduler.state.limits.patch({"ttft_target": 0.001}, None, 0.0)
    assert scheduler.submit(request("patient", 100)) is None


def test_a_request_that_overtakes_the_queue_is_not_rejected_because_of_the_queue() -> None:
    assert busy("edf").submit(request("tight", 100, ttft_target=0.2)) is None


def test_without_a_fitted_model_no_request_is_rejected_for_a_deadline() -> None:
    scheduler = engine()
    scheduler.submit(request("a", 400))
    assert scheduler.submit(request("b", 400, ttft_target=1e-6)) is None


def test_the_wait_for_occupied_places_follows_littles_law() -> None:
    scheduler = engine(seqs=2, blocks=200)
    for name in "abcd":
        scheduler.submit(request(name))
    step(scheduler, model=MODEL)
    scheduler.state.residence = 10.0
    rejection = scheduler.submit(request("e", ttft_target=5.0))
    assert rejection is not None and rejection.retry_after == pytest.approx(
        15.0, abs=0.1
    )  # two ahead, two places, 10 s each

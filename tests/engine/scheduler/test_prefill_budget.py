"""Prompt chunks beside decoding requests: Sarathi-Serve's scenarios in virtual time, and what sizes a chunk."""

from itertools import count

import pytest

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.control.tail_correction import MIN_RATIOS, TailCorrection
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Outcome, Plan, Scheduler, SchedulerConfig
from sluice_engine.scheduler.chunking import rounded
from sluice_perfmodel.step_time import StepTimeModel, StepWork

MODEL = StepTimeModel(base=0.010, prefill_token=2e-5, prefill_context=4e-9, sequence=1e-4, kv_token=1e-8, steps=1000)


def engine(tokens: int, seqs: int = 128, itl_target: float = 0.05, **config: object) -> Scheduler:
    bounds = Limits(concurrency_max=seqs, max_batched_tokens=tokens, itl_target=itl_target)
    settled = SchedulerConfig(num_blocks=4096, max_model_length=16_384, max_num_seqs=seqs, **config)  # type: ignore[arg-type]
    return Scheduler(settled, LimitController(bounds))


_starts = count(0, 100_000)


def request(name: str, prompt: int, max_tokens: int = 1000, **fields: object) -> Request:
    start = next(_starts)
    return Request(name, list(range(start, start + prompt)), max_tokens, 0.0, **fields)  # type: ignore[arg-type]


def step(scheduler: Scheduler, now: float = 0.0, model: StepTimeModel | None = None) -> tuple[Plan, list[Outcome]]:
    plan = scheduler.plan(now, model)
    assert plan is not None
    ended = now + (model.predict(plan.work) if model else 0.0)
    outcomes = scheduler.settle(plan, [7] * sum(row.samples for row in plan.rows), ended)
    scheduler.check()
    return plan, outcomes


def chunk(*targets: float | None) -> int:
    """The chunk of a long prompt beside streams with these targets."""
    scheduler = engine(tokens=2048, itl_target=0.05)
    for index, target in enumerate(targets):
        scheduler.submit(request(f"s{index}", 10, itl_target=target))
    step(scheduler)
    scheduler.submit(request("long", 4000))
    return step(scheduler, model=MODEL)[0].work.prefill_tokens


def test_sixty_streams_and_two_chunks_of_512_share_a_step_of_1084_tokens() -> None:
    scheduler = engine(tokens=1084)
    for index in range(60):
        scheduler.submit(request(f"stream {index}", 10))
    step(scheduler)
    for name in ("first", "second"):
        scheduler.submit(request(name, 512))
    plan, outcomes = step(scheduler)
    assert [len(row.tokens) for row in plan.rows] == [1] * 60 + [512, 512]
    assert (plan.work.sequences, plan.work.prefill_tokens, len(outcomes)) == (60, 1024, 62)


@pytest.mark.parametrize("target", [0.03, 0.05])
def test_ten_thousand_tokens_among_fifty_streams_keep_every_gap_under_the_target(target: float) -> None:
    scheduler = engine(tokens=550, itl_target=target)
    for index in range(50):
        scheduler.submit(request(f"stream {index}", 10))
    step(scheduler)
    scheduler.submit(request("long", 10_000))
    chunks, gaps, now = [], [], 0.0
    while scheduler.requests["long"].generated == 0:
        plan, outcomes = step(scheduler, now, MODEL)
        now += MODEL.predict(plan.work)
        chunks.append(plan.work.prefill_tokens)
        gaps += [outcome.gap for outcome in outcomes if outcome.gap is not None]
        assert plan.work.sequences == 50  # no stream stalls
    assert sum(chunks) == 10_000 and max(chunks) == 500
    assert max(gaps) <= target + 1e-9
    if target == 0.05:
        assert set(chunks) == {500}  # the target leaves room for the whole window at any depth
    else:
        prefill = MODEL.prefill_token * 10_000 + MODEL.prefill_context * 10_000 * 5_000
        beside = MODEL.predict(StepWork(sequences=50, kv_tokens=50 * 30))
        assert now <= 1.3 * target * prefill / (target - beside)  # the least that the model allows


def test_a_slot_freed_by_length_is_taken_in_the_very_next_step() -> None:
    scheduler = engine(tokens=256, seqs=2)
    scheduler.submit(request("a", 10, max_tokens=2))
    scheduler.submit(request("b", 10))
    scheduler.submit(request("next", 10))
    step(scheduler)
    _, outcomes = step(scheduler)
    assert [(outcome.request_id, outcome.finish) for outcome in outcomes] == [("a", "length"), ("b", None)]
    plan, _ = step(scheduler)
    assert [(row.request_id, row.start) for row in plan.rows] == [("b", 11), ("next", 0)]


def test_the_tightest_target_of_those_that_decode_sets_the_chunk() -> None:
    assert chunk(None, None) > chunk(None, 0.03) > chunk(None, 0.02) > 0
    assert chunk(0.03, 0.2) == chunk(None, 0.03)
    assert chunk(0.2) == 2047  # a stream that can wait: the whole budget


def test_a_target_that_decoding_alone_misses_does_not_bound_chunks() -> None:
    assert chunk(1e-6, None) == chunk(None, None)
    assert chunk(1e-6, 0.03) == chunk(None, 0.03)
    assert chunk(1e-6) == chunk(None)


def test_without_streams_the_budget_is_full_whatever_the_targets() -> None:
    scheduler = engine(tokens=2048, itl_target=0.001)
    scheduler.submit(request("a", 4000, itl_target=0.001))
    assert step(scheduler, model=MODEL)[0].work.prefill_tokens == 2048


def test_chunk_sizes_are_few_and_give_away_at_most_a_ninth() -> None:
    sizes = {rounded(tokens) for tokens in range(1, 2049)}
    assert len(sizes) <= 8 * 11  # eight to each power of two
    assert all(8 * tokens <= 9 * rounded(tokens) <= 9 * tokens for tokens in range(1, 2049))
    assert [rounded(tokens) for tokens in (1, 7, 15, 16, 70, 130, 255, 1000)] == [1, 7, 15, 16, 64, 128, 240, 960]


def test_deep_in_a_long_prompt_a_chunk_may_be_shorter_than_sixteen_tokens() -> None:
    """As a small model's on a processor: at depth 8,000 one token costs 0.8 ms of attention, and 6 ms are left."""
    model = StepTimeModel(base=4e-3, prefill_token=1e-4, prefill_context=9e-8, sequence=1e-4, kv_token=1e-8, steps=1000)
    scheduler, target, now = engine(tokens=2048, itl_target=0.012), 0.012, 0.0
    for index in range(16):
        scheduler.submit(request(f"stream {index}", 10))
    step(scheduler)
    scheduler.submit(request("long", 8000))
    chunks, gaps = [], []
    while scheduler.requests["long"].generated == 0:
        plan, outcomes = step(scheduler, now, model)
        now += model.predict(plan.work)
        chunks.append(plan.work.prefill_tokens)
        gaps += [outcome.gap for outcome in outcomes if outcome.gap is not None]
    assert min(chunks[:-1]) < 16 and sum(chunks) == 8000
    assert max(gaps) <= target + 1e-9


@pytest.mark.parametrize("target", [0.0199, 0.0201, 0.02015, 0.0204])
def test_a_target_just_above_the_decode_time_does_not_stop_all_prompts(target: float) -> None:
    """A tenth of the step is there for prompts whatever one stream asks for: at 0.1 ms a token, the least chunk."""
    model = StepTimeModel(base=0.01984, prefill_token=1e-4, sequence=1e-5, steps=1000)
    scheduler, now = engine(tokens=2048, itl_target=0.05), 0.0
    for index in range(16):
        scheduler.submit(request(f"stream {index}", 10, itl_target=target))
    step(scheduler)
    scheduler.submit(request("prompt", 2000))
    steps = 0
    while scheduler.requests["prompt"].generated == 0:
        plan, _ = step(scheduler, now, model)
        now += model.predict(plan.work)
        steps += 1
    assert steps <= 2000 // 16


def test_steps_that_overrun_their_prediction_shorten_the_chunks() -> None:
    """A machine whose mixed steps take 1.5 times the prediction: the p95 of the gaps comes to the target again."""
    scheduler, now = engine(tokens=2048, itl_target=0.05), 0.0
    for index in range(10):
        scheduler.submit(request(f"s{index}", 10))
    step(scheduler)
    gaps = []
    for number in range(60):
        scheduler.submit(request(f"p{number}", 3000, max_tokens=1))
        plan = scheduler.plan(now, MODEL)
        assert plan is not None
        now += MODEL.predict(plan.work) * (1.5 if plan.work.prefill_tokens else 1.0)
        outcomes = scheduler.settle(plan, [7] * sum(row.samples for row in plan.rows), now)
        gaps.append(max(outcome.gap for outcome in outcomes if outcome.gap is not None))
    assert max(gaps[2:10]) > 1.1 * 0.05
    assert max(gaps[MIN_RATIOS + 2 :]) <= 0.05 + 1e-9


def test_steps_that_no_target_bounded_do_not_shorten_later_chunks() -> None:
    """Whole prompts beside streams in no hurry, three times as long as predicted: nothing follows for tight targets."""
    scheduler, now = engine(tokens=2048, itl_target=10.0), 0.0
    for index in range(10):
        scheduler.submit(request(f"s{index}", 10))
    step(scheduler)
    for number in range(MIN_RATIOS + 2):
        scheduler.submit(request(f"p{number}", 1000, max_tokens=1))
        plan = scheduler.plan(now, MODEL)
        assert plan is not None and plan.work.prefill_tokens and not plan.timed
        now += 3.0 * MODEL.predict(plan.work)
        scheduler.settle(plan, [7] * sum(row.samples for row in plan.rows), now)
    assert scheduler.state.correction.tail() == 1.0


def test_the_correction_waits_for_samples_and_never_lengthens() -> None:
    correction = TailCorrection()
    for _ in range(MIN_RATIOS - 1):
        correction.observe(2.0, 1.0)
    assert correction.tail() == 1.0
    correction.observe(2.0, 1.0)
    assert correction.tail() == 2.0
    for _ in range(100):
        correction.observe(0.5, 1.0)
    assert correction.tail() == 1.0
    for _ in range(100):
        correction.observe(50.0, 1.0)
    assert correction.tail() == 3.0

"""Whole steps with the field's own numbers, no model behind them: the scheduler alone decides them."""

import random

import pytest

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Plan, Scheduler, SchedulerConfig
from sluice_perfmodel.step_time import StepTimeModel

MODEL = StepTimeModel(base=0.008, prefill_token=4e-5, prefill_context=6e-9, sequence=1e-5, kv_token=4.5e-7, steps=1000)


def scheduler(bounds: Limits, seqs: int = 64, blocks: int = 4096, length: int = 16_384) -> Scheduler:
    config = SchedulerConfig(num_blocks=blocks, max_num_seqs=seqs, max_model_length=length)
    return Scheduler(config, LimitController(bounds))


def request(name: str, prompt: int, max_tokens: int = 10_000) -> Request:
    salt = sum(name.encode())
    return Request(name, [1000 * salt + position for position in range(prompt)], max_tokens, 0.0, frozenset([9]))


def settle(engine: Scheduler, plan: Plan | None, now: float = 0.0) -> Plan:
    assert plan is not None
    engine.settle(plan, [7] * sum(row.samples for row in plan.rows), now)
    engine.check()
    return plan


def decoding(engine: Scheduler, count: int) -> None:
    for index in range(count):
        engine.submit(request(f"stream{index:02}", 8))
    while any(each.remaining > 1 for each in engine.running) or len(engine.running) < count:
        settle(engine, engine.plan(0.0))


def test_sixty_streams_and_two_chunks_of_512_share_one_step_of_1084_tokens() -> None:
    engine = scheduler(Limits(concurrency_max=62, max_batched_tokens=1084, itl_target=10.0))
    decoding(engine, 60)
    engine.submit(request("x", 512))
    engine.submit(request("y", 2000))
    plan = settle(engine, engine.plan(0.0, MODEL))
    assert [len(row.tokens) for row in plan.rows] == [1] * 60 + [512, 512]
    assert (plan.work.sequences, plan.work.prefill_tokens) == (60, 1024)
    assert [row.samples for row in plan.rows] == [True] * 60 + [True, False]


@pytest.mark.parametrize(("target", "steps"), [(0.070, 20), (0.050, 21)])  # the tighter one cuts the last windows
def test_a_prompt_of_ten_thousand_tokens_in_windows_of_500_leaves_fifty_streams_inside_their_target(
    target: float, steps: int
) -> None:
    engine = scheduler(Limits(concurrency_max=64, max_batched_tokens=550, itl_target=target))
    decoding(engine, 50)
    engine.submit(request("long", 10_000, max_tokens=1))
    now, chunks = 0.0, []
    while "long" in engine.requests:
        plan = engine.plan(now, MODEL)
        assert plan is not None and plan.work.sequences == 50
        now += MODEL.predict(plan.work)
        chunks.append(plan.work.prefill_tokens)
        outcomes = engine.settle(plan, [7] * sum(row.samples for row in plan.rows), now)
        assert all(outcome.gap is not None and outcome.gap <= target for outcome in outcomes if not outcome.first)
        engine.check()
    assert len(chunks) == steps and sum(chunks) == 10_000 and chunks == sorted(chunks, reverse=True)
    assert chunks[:10] == [500] * 10 and (chunks[-1] == 500 or target < 0.070)


@pytest.mark.parametrize(("max_tokens", "token", "surplus"), [(2, 7, 0), (50, 9, 1)])
def test_a_slot_is_taken_in_the_very_next_step_after_an_end_by_length_and_one_later_after_a_stop(
    max_tokens: int, token: int, surplus: int
) -> None:
    engine = scheduler(Limits(concurrency_max=51), seqs=51)
    decoding(engine, 50)
    engine.submit(request("ends", 4, max_tokens=max_tokens))
    settle(engine, engine.plan(0.0))
    engine.submit(request("next", 4))
    last = engine.plan(0.0)  # computes the last token of the one that ends
    ahead = engine.plan_ahead(0.0)
    assert last is not None and ahead is not None
    engine.settle(last, [7] * 50 + [token], 1.0)
    assert ("next" in {row.request_id for row in ahead.rows}) == (surplus == 0)
    later = engine.plan_ahead(1.0)
    assert later is not None and "next" in {row.request_id for row in later.rows}
    assert sum(row.request_id == "ends" for row in ahead.rows) == surplus
    engine.check()


def test_bookkeeping_is_consistent_after_each_of_ten_thousand_aborts() -> None:
    dice = random.Random(5)
    engine = scheduler(Limits(concurrency_max=8, max_batched_tokens=64, max_queue=100), seqs=8, blocks=48, length=160)
    number, aborts, under_way = 0, 0, None
    while aborts < 10_000:
        while len(engine.requests) < 12:
            tokens = [dice.randrange(2) for _ in range(dice.randint(1, 120))]
            engine.submit(Request(str(number), tokens, dice.randint(1, 40), 0.0, frozenset([9])))
            number += 1
        plan = under_way or engine.plan(0.0)
        assert plan is not None
        under_way = engine.plan_ahead(0.0) if dice.random() < 0.7 else None
        for _ in range(dice.randint(1, 6)):  # while one or two steps are under way
            if engine.requests:
                assert engine.cancel(dice.choice(list(engine.requests)))
                aborts += 1
                engine.check()
        engine.settle(plan, [dice.randrange(10) for row in plan.rows if row.samples], 0.0)
        engine.check()
    for name in list(engine.requests):
        engine.cancel(name)
    if under_way is not None:
        engine.settle(under_way, [7] * sum(row.samples for row in under_way.rows), 0.0)
    engine.check()
    assert engine.pool.held == 0 and engine.pool.available == 48

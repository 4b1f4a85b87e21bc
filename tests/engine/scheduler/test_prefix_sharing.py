"""Equal prompts that start in one step compute their common blocks once, also where the computing request fails."""

from pathlib import Path

import pytest

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.core.engine import EngineLoop
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Plan, Scheduler, SchedulerConfig
from sluice_engine.scheduler.transitions import preempt
from tests.engine.oracle import Oracle, finish, options, submit


def engine(tokens: int = 256, blocks: int = 64, length: int = 512) -> Scheduler:
    config = SchedulerConfig(num_blocks=blocks, max_model_length=length, max_num_seqs=8)
    return Scheduler(config, LimitController(Limits(concurrency_max=8, max_batched_tokens=tokens)))


def request(name: str, prompt: int = 40, max_tokens: int = 4) -> Request:
    return Request(name, list(range(prompt)), max_tokens, 0.0)


def plan_of(scheduler: Scheduler) -> Plan:
    plan = scheduler.plan(0.0)
    assert plan is not None
    return plan


def rows(plan: Plan) -> list[tuple[str, int, int]]:
    return [(row.request_id, row.start, len(row.tokens)) for row in plan.rows]


def test_equal_prompts_that_begin_together_share_their_full_blocks() -> None:
    scheduler = engine()
    for name in "abc":
        scheduler.submit(request(name))
    plan = plan_of(scheduler)
    assert rows(plan) == [("a", 0, 40), ("b", 32, 8), ("c", 32, 8)]
    assert plan.rows[1].new_blocks[:2] == plan.rows[2].new_blocks[:2] == plan.rows[0].new_blocks[:2]
    outcomes = scheduler.settle(plan, [7, 7, 7], 0.0)
    scheduler.check()
    assert [outcome.cached_tokens for outcome in outcomes] == [0, 32, 32]
    assert scheduler.pool.held == 2 + 3


def test_only_what_this_step_computes_is_shared() -> None:
    scheduler = engine(tokens=30)
    scheduler.submit(request("a"))
    scheduler.submit(request("b"))
    assert rows(plan_of(scheduler)) == [("a", 0, 30)]
    scheduler = engine(tokens=60)
    scheduler.submit(request("a", prompt=50))
    scheduler.submit(request("b", prompt=50))
    plan = plan_of(scheduler)
    assert rows(plan) == [("a", 0, 50), ("b", 48, 2)]


def test_a_request_that_started_from_blocks_of_a_failed_one_is_recomputed() -> None:
    scheduler = engine()
    for name in "abc":
        scheduler.submit(request(name))
    plan = plan_of(scheduler)
    outcomes = scheduler.settle(plan, [-1, 8, 9], 0.0, {"a": "it broke"})
    scheduler.check()
    assert [(outcome.request_id, outcome.finish) for outcome in outcomes] == [("a", "error")]
    assert scheduler.pool.held == scheduler.pool.cached == 0  # nothing of it can be found again
    assert sorted(scheduler.state.tables.tainted) == sorted(set(scheduler.state.tables.tainted))
    plan = plan_of(scheduler)
    assert rows(plan) == [("b", 0, 40), ("c", 32, 8)]
    assert [outcome.token_ids for outcome in scheduler.settle(plan, [5, 6], 0.0)] == [(5,), (6,)]


def test_a_failed_request_does_not_affect_requests_that_share_blocks_of_another() -> None:
    scheduler = engine()
    for name in "ab":
        scheduler.submit(request(name))
    scheduler.submit(Request("x", list(range(500, 540)), 4, 0.0))
    plan = plan_of(scheduler)
    outcomes = scheduler.settle(plan, [7, 8, -1], 0.0, {"x": "it broke"})
    assert [(outcome.request_id, outcome.token_ids) for outcome in outcomes] == [("a", (7,)), ("b", (8,)), ("x", ())]


def test_a_request_with_tokens_in_this_step_is_never_preempted() -> None:
    """A long prompt that needs room beside streams which already have their token: the books stay right, the prompt
    waits for one of them to end."""
    scheduler = engine(tokens=40, blocks=32)
    scheduler.submit(Request("long", list(range(1000, 1300)), 200, 0.0))
    scheduler.plan(0.0)
    scheduler = engine(tokens=40, blocks=32)
    for name in range(6):
        scheduler.submit(Request(str(name), list(range(1000 * name, 1000 * name + 60)), 150, 0.0))
    scheduler.submit(Request("long", list(range(9000, 9300)), 200, 0.0))
    while scheduler.requests:
        plan = plan_of(scheduler)
        assert plan.preempted not in {row.request_id for row in plan.rows}
        scheduler.settle(plan, [7] * sum(row.samples for row in plan.rows), 0.0)
        scheduler.check()


def test_blocks_that_are_recomputed_after_a_preemption_are_found_at_once() -> None:
    """Even where the last of them is not full: the next block would be released too late for requests that start meanwhile."""
    scheduler = engine()
    scheduler.submit(request("a", max_tokens=100))
    for _ in range(10):
        scheduler.settle(plan_of(scheduler), [7], 0.0)
    preempt(scheduler.state, scheduler.requests["a"], forget=True)
    plan = plan_of(scheduler)
    assert rows(plan) == [("a", 0, 50)]
    scheduler.settle(plan, [7], 0.0)
    assert scheduler.running[0].indexed == 3
    scheduler.submit(Request("b", [*range(40), *[7] * 10], 4, 0.0))
    assert rows(plan_of(scheduler)) == [("a", 50, 1), ("b", 48, 2)]


@pytest.mark.parametrize("copies", [2, 5])
def test_equal_prompts_that_start_together_have_the_tokens_of_one_alone(
    tiny_llama: Path, oracle: Oracle, copies: int
) -> None:
    loop = EngineLoop(options(tiny_llama))
    prompt = [3 + (7 * index) % 90 for index in range(37)]
    for name in range(copies):
        submit(loop, str(name), prompt, 12)
    texts = finish(loop)
    for name in range(copies):
        oracle.expect(prompt, texts[str(name)], 12)

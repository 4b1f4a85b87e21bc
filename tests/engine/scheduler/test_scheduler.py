"""Which requests a step computes, by example; properties over random loads are in test_properties.py."""

import pytest

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Outcome, Plan, Scheduler, SchedulerConfig
from sluice_perfmodel.step_time import StepTimeModel


def scheduler(blocks: int = 64, length: int = 512, seqs: int = 16, **bounds: float) -> Scheduler:
    config = SchedulerConfig(num_blocks=blocks, max_model_length=length, max_num_seqs=seqs)
    values: dict[str, float] = {"concurrency_max": seqs, "max_batched_tokens": 256}
    return Scheduler(config, LimitController(Limits(**(values | bounds))))  # type: ignore[arg-type]


def request(name: str, prompt: int, max_tokens: int = 8, salt: int = 0, stop: int | None = None) -> Request:
    known = [1000 * (salt + 1) + position for position in range(prompt)]
    return Request(name, known, max_tokens, 0.0, frozenset() if stop is None else frozenset([stop]))


def step(engine: Scheduler, now: float = 0.0, token: int = 7, model: StepTimeModel | None = None) -> Plan:
    return step_with_outcomes(engine, now, token, model)[0]


def step_with_outcomes(
    engine: Scheduler, now: float = 0.0, token: int = 7, model: StepTimeModel | None = None
) -> tuple[Plan, list[Outcome]]:
    plan = engine.plan(now, model)
    assert plan is not None
    outcomes = engine.settle(plan, [token] * sum(row.samples for row in plan.rows), now)
    engine.check()
    return plan, outcomes


def rows(plan: Plan) -> list[tuple[str, int, int]]:
    return [(row.request_id, row.start, len(row.tokens)) for row in plan.rows]


def test_requests_join_and_leave_at_every_step() -> None:
    engine = scheduler()
    engine.submit(request("a", 5, max_tokens=3))
    assert rows(step(engine)) == [("a", 0, 5)]
    engine.submit(request("b", 7, max_tokens=1, salt=1))
    assert rows(step(engine)) == [("a", 5, 1), ("b", 0, 7)]
    assert rows(step(engine)) == [("a", 6, 1)]  # b had its one token
    assert engine.plan(0.0) is None


def test_decodes_come_first_and_a_long_prompt_is_cut_beside_them() -> None:
    engine = scheduler(max_batched_tokens=64)
    engine.submit(request("a", 4))
    step(engine)
    engine.submit(request("long", 150, salt=1))
    assert rows(step(engine)) == [("a", 4, 1), ("long", 0, 63)]
    assert rows(step(engine)) == [("a", 5, 1), ("long", 63, 63)]
    assert rows(step(engine)) == [("a", 6, 1), ("long", 126, 24)]
    assert rows(step(engine)) == [("a", 7, 1), ("long", 150, 1)]


def test_chunks_of_running_prompts_come_before_waiting_requests_in_order_of_arrival() -> None:
    engine = scheduler(max_batched_tokens=100)
    engine.submit(request("a", 150))
    engine.submit(request("b", 30, salt=1))
    engine.submit(request("c", 90, salt=2))
    assert rows(step(engine)) == [("a", 0, 100)]
    assert rows(step(engine)) == [("a", 100, 50), ("b", 0, 30), ("c", 0, 20)]


def test_the_concurrency_limit_holds_arrivals_and_lowering_it_aborts_no_request() -> None:
    engine = scheduler()
    for name in "abc":
        engine.submit(request(name, 4, salt=ord(name)))
    engine.state.limits.patch({"concurrency_max": 2}, 60.0, 0.0)
    assert [row[0] for row in rows(step(engine))] == ["a", "b"]
    engine.state.limits.patch({"concurrency_max": 1}, 60.0, 0.0)
    assert [row[0] for row in rows(step(engine))] == ["a", "b"]  # drains down


def test_a_full_queue_rejects_with_the_predicted_wait() -> None:
    engine = scheduler(concurrency_max=2, max_queue=3)
    assert [engine.submit(request(str(i), 4, salt=i)) for i in range(5)] == [None] * 5  # 2 start, 3 wait
    engine.state.residence = 4.0
    rejection = engine.submit(request("one too many", 4))
    assert rejection is not None
    assert (rejection.reason, rejection.retry_after) == ("queue_full", (6 - 2) * 4.0 / 2)


def test_a_draining_scheduler_rejects_new_requests_and_finishes_accepted_ones() -> None:
    engine = scheduler()
    engine.submit(request("a", 4, max_tokens=2))
    engine.drain()
    rejection = engine.submit(request("b", 4))
    assert rejection is not None and rejection.reason == "draining"
    step(engine)
    assert step_with_outcomes(engine)[1][0].finish == "length"


def test_a_stop_token_ends_the_request_and_is_not_delivered() -> None:
    engine = scheduler()
    engine.submit(request("a", 4, stop=9))
    step(engine, token=7)
    outcome = step_with_outcomes(engine, token=9)[1][0]
    assert (outcome.token_ids, outcome.finish) == ((), "stop")
    assert not engine.requests


def test_generation_ends_at_the_models_length() -> None:
    engine = scheduler(blocks=1, length=16)
    engine.submit(request("a", 14, max_tokens=100))
    assert step_with_outcomes(engine)[1][0].finish is None
    assert step_with_outcomes(engine)[1][0].finish == "length"


def test_a_request_that_could_never_run_is_rejected_with_a_sentence() -> None:
    engine = scheduler(blocks=1, length=16)
    with pytest.raises(ValueError, match="16 tokens; with one to generate, this model takes at most 15"):
        engine.submit(request("long", 16))
    with pytest.raises(ValueError, match="prompt of one token"):
        engine.submit(request("empty", 0))
    engine.submit(request("a", 3))
    with pytest.raises(ValueError, match="already exists"):
        engine.submit(request("a", 3))
    with pytest.raises(ValueError, match="cannot hold one request of 17 tokens"):
        SchedulerConfig(num_blocks=1, max_model_length=17)


def test_a_repeated_prompt_is_a_hit_that_still_computes_its_last_token() -> None:
    engine = scheduler()
    engine.submit(request("a", 48, max_tokens=1))
    step(engine)
    engine.submit(request("b", 48, max_tokens=1))
    plan, outcomes = step_with_outcomes(engine)
    assert rows(plan) == [("b", 32, 16)]
    assert (outcomes[0].cached_tokens, plan.cached_prompt_tokens, plan.prompt_tokens) == (32, 32, 48)


def test_what_was_generated_is_found_by_the_next_turn() -> None:
    engine = scheduler()
    engine.submit(request("a", 10, max_tokens=30))
    for _ in range(30):
        step(engine, token=5)
    follow_up = request("b", 10)
    engine.submit(Request("b", follow_up.known + [5] * 30 + [8], 1, 0.0))
    assert rows(step(engine)) == [("b", 32, 9)]


def test_without_free_blocks_the_latest_is_preempted_and_resumes_from_its_cached_prefix() -> None:
    engine = scheduler(blocks=6, length=96)
    engine.submit(request("a", 40, max_tokens=30))
    engine.submit(request("b", 17, max_tokens=30, salt=1))  # 3 + 2 blocks, and one of margin
    preempted = [step(engine).preempted for _ in range(30)]
    assert preempted.count("b") == 1 and preempted.count(None) == 29
    engine.submit(request("c", 4, salt=2))
    plan = step(engine)
    assert plan.rows[0].request_id == "b" and plan.rows[0].start >= 16  # first in the queue, not recomputed whole


def test_a_preempted_request_resumes_only_when_its_whole_sequence_fits() -> None:
    engine = scheduler(blocks=6, length=96)
    engine.submit(request("a", 40, max_tokens=50))
    engine.submit(request("b", 17, max_tokens=50, salt=1))
    while engine.requests:
        step(engine)
    assert engine.preemptions == 1  # no thrash


def test_the_kv_watermark_keeps_part_of_the_pool_from_running_requests() -> None:
    engine = scheduler(blocks=10, length=160, kv_watermark=0.5)
    engine.submit(request("a", 40))
    engine.submit(request("b", 40, salt=1))
    assert rows(step(engine)) == [("a", 0, 40)]
    engine.state.limits.patch({"kv_watermark": 1.0}, None, 0.0)
    assert [row[0] for row in rows(step(engine))] == ["a", "b"]


def test_a_cancelled_request_releases_its_blocks_at_once() -> None:
    engine = scheduler()
    engine.submit(request("a", 40))
    engine.submit(request("b", 40, salt=1))
    step(engine)
    assert engine.cancel("a") and not engine.cancel("a")
    assert engine.cancel("b")
    engine.check()
    assert engine.pool.held == 0


def test_blocks_of_a_failed_request_are_removed_from_the_index() -> None:
    engine = scheduler()
    engine.submit(request("a", 40))
    plan = engine.plan(0.0)
    assert plan is not None
    outcomes = engine.settle(plan, [-1], 0.0, {"a": "it broke"})
    assert (outcomes[0].finish, outcomes[0].error) == ("error", "it broke")
    assert engine.pool.free == 64 and sorted(engine.state.tables.tainted) == [0, 1, 2]


# --- the latency-driven prefill budget -------------------------------------------------------------------------

MODEL = StepTimeModel(base=0.010, prefill_token=0.0002, sequence=0.001, steps=1000)


def test_beside_decodes_a_chunk_takes_what_the_target_leaves() -> None:
    engine = scheduler(itl_target=0.025)
    engine.submit(request("a", 4))
    step(engine)
    engine.submit(request("long", 200, salt=1))
    assert rows(step(engine, model=MODEL))[1] == ("long", 0, 64)  # (25 − 10 − 1) ms / 0.2 ms = 70, in sixteens


def test_prefill_always_progresses_by_sixteen_tokens() -> None:
    engine = scheduler(itl_target=0.001)
    engine.submit(request("a", 4))
    step(engine)
    engine.submit(request("long", 200, salt=1))
    assert rows(step(engine, model=MODEL))[1] == ("long", 0, 16)


def test_without_decoding_requests_or_a_fitted_model_the_budget_is_full() -> None:
    engine = scheduler(itl_target=0.001)
    engine.submit(request("long", 200))
    assert rows(step(engine, model=MODEL)) == [("long", 0, 200)]
    engine.submit(request("second", 200, salt=1))
    cold = StepTimeModel(base=0.010, prefill_token=0.0002, sequence=0.001, steps=3)
    assert rows(step(engine, model=cold))[1] == ("second", 0, 200)


def test_the_quadratic_term_shortens_chunks_of_a_long_prompt() -> None:
    model = StepTimeModel(base=0.010, prefill_token=0.0001, prefill_context=1e-6, steps=1000)
    engine = scheduler(itl_target=0.024, max_batched_tokens=256)
    engine.submit(request("a", 4, max_tokens=50))
    step(engine)
    engine.submit(request("long", 400, salt=1))
    chunks = []
    while engine.requests["long"].remaining > 1:
        plan = step(engine, model=model)
        chunks.append(plan.work.prefill_tokens)
        assert model.predict(plan.work) <= 0.024 + 1e-9
    assert chunks == sorted(chunks, reverse=True) and chunks[0] > chunks[-2]

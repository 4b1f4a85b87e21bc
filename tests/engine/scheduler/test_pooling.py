"""Pooling requests: each is computed in a single step, by the scheduler that chunks and preempts all others."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Plan, Scheduler, SchedulerConfig
from sluice_engine.scheduler.policies import POLICIES
from sluice_perfmodel.step_time import StepTimeModel

LONGEST = 96
SIZES = st.lists(st.tuples(st.integers(1, LONGEST - 1), st.integers(0, 12)), min_size=1, max_size=24)


def scheduler(policy: str = "fcfs", *, budget: int = 64, blocks: int = 8, places: int = 8) -> Scheduler:
    config = SchedulerConfig(
        num_blocks=blocks, block_size=16, max_num_seqs=places, max_model_length=LONGEST, policy=policy
    )
    return Scheduler(config, LimitController(Limits(concurrency_max=places, max_batched_tokens=budget)))


def pooling(name: str, length: int, at: float = 0.0, **more: object) -> Request:
    return Request(name, list(range(length)), max_tokens=0, arrived_at=at, pooling=True, **more)  # type: ignore[arg-type]


def steps(engine: Scheduler, model: StepTimeModel | None = None) -> list[Plan]:
    """All plans until nothing is left, the books checked after each."""
    plans: list[Plan] = []
    while (plan := engine.plan(float(len(plans)), model)) is not None:
        plans.append(plan)
        engine.settle(plan, [7] * sum(row.samples for row in plan.rows), float(len(plans)))
        engine.check()
        assert len(plans) < 5000
    return plans


@settings(max_examples=80, deadline=None)
@given(SIZES, st.sampled_from(sorted(POLICIES)), st.integers(6, 20), st.integers(1, 80), st.booleans())
def test_among_generating_requests_each_is_computed_once_in_a_single_row(
    sizes: list[tuple[int, int]], policy: str, blocks: int, budget: int, fitted: bool
) -> None:
    engine = scheduler(policy, budget=budget, blocks=blocks)
    pooled: dict[str, int] = {}
    for index, (length, output) in enumerate(sizes):
        name = str(index)
        if output == 0:
            pooled[name] = length
            assert engine.submit(pooling(name, length, priority=index % 3, tenant=str(index % 2))) is None
        else:
            prompt = [3 + index] * length
            engine.submit(Request(name, prompt, max_tokens=output, arrived_at=0.0, tenant=str(index % 2)))
    model = StepTimeModel(0.01, 1e-3, 1e-6, 1e-3, 1e-6, error_ratio=0.0, steps=500) if fitted else None
    plans = steps(engine, model)
    seen = [row for plan in plans for row in plan.rows if row.request_id in pooled]
    assert sorted(row.request_id for row in seen) == sorted(pooled)
    for row in seen:
        assert len(row.tokens) == pooled[row.request_id]
        assert row.start == 0
        assert not row.samples
        assert not row.new_blocks
    assert not engine.requests
    assert engine.pool.held == 0


def test_a_step_is_filled_with_as_many_as_its_budget_holds_in_the_order_of_the_policy() -> None:
    engine = scheduler(budget=64)
    for index, length in enumerate([30, 30, 10, 4, 90, 5]):
        engine.submit(pooling(str(index), length))
    assert [[row.request_id for row in plan.rows] for plan in steps(engine)] == [["0", "1"], ["2", "3"], ["4"], ["5"]]


def test_the_concurrency_limit_holds_for_a_step() -> None:
    engine = scheduler(places=3)
    for index in range(7):
        engine.submit(pooling(str(index), 4))
    assert [len(plan.rows) for plan in steps(engine)] == [3, 3, 1]


def test_priorities_and_deadlines_order_them() -> None:
    engine = scheduler("priority", budget=16)
    for index, priority in enumerate([0, -50, 50]):
        engine.submit(pooling(str(index), 16, priority=priority))
    assert [plan.rows[0].request_id for plan in steps(engine)] == ["2", "0", "1"]
    engine = scheduler("edf", budget=16)
    for index, target in enumerate([9.0, 8.0, 7.0]):
        engine.submit(pooling(str(index), 16, ttft_target=target))
    assert [plan.rows[0].request_id for plan in steps(engine)] == ["2", "1", "0"]


def test_a_text_longer_than_the_model_is_rejected_with_both_numbers() -> None:
    engine = scheduler()
    engine.submit(pooling("fits", LONGEST))
    with pytest.raises(ValueError, match=f"97 tokens and must be computed whole; this model takes at most {LONGEST}"):
        engine.submit(pooling("beyond", LONGEST + 1))
    assert [len(row.tokens) for plan in steps(engine) for row in plan.rows] == [LONGEST]


def test_a_failed_or_cancelled_text_does_not_affect_the_others() -> None:
    engine = scheduler(budget=1000)
    for name in "abc":
        engine.submit(pooling(name, 20))
    assert engine.cancel("b")
    plan = engine.plan(0.0)
    assert plan is not None
    outcomes = engine.settle(plan, [], 1.0, {"a": "it broke"})
    assert [(each.request_id, each.finish, each.error) for each in outcomes] == [
        ("a", "error", "it broke"),
        ("c", "stop", None),
    ]
    engine.check()
    assert not engine.requests


def test_pooling_requests_do_not_enter_the_output_length_history() -> None:
    engine = scheduler()
    engine.submit(pooling("a", 20))
    steps(engine)
    assert engine.state.mean_output is None
    assert engine.state.residence is not None

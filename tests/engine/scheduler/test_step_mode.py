"""A step has one mode: drafts, chunk deadlines and overlap exclude one another, whatever the load."""

from collections import Counter

import pytest

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Plan, Scheduler, SchedulerConfig
from sluice_engine.scheduler.plan import PENDING, StepMode
from sluice_engine.speculation.controller import Mode
from sluice_perfmodel.step_time import StepTimeModel

MODEL = StepTimeModel(base=0.01, prefill_token=2e-5, prefill_context=4e-9, sequence=1e-4, kv_token=1e-8, steps=1000)
STEPS = 200
CIRCLE = 4  # tokens: outputs repeat 0, 1, 2, 3, so drafts are found and accepted


def results(plan: Plan) -> tuple[list[int], dict[str, int]]:
    """A token for each sampling row, and the drafts before it, all of them accepted."""
    sampled = [(row.start + len(row.tokens)) % CIRCLE for row in plan.rows if row.samples]
    return sampled, {row.request_id: row.drafts for row in plan.rows if row.drafts}


def modes_of_a_run(speculation: Mode, chunk_deadlines: bool) -> Counter[object]:
    """Modes of the steps of one load, planned ahead wherever the scheduler allows it."""
    config = SchedulerConfig(
        num_blocks=4096, max_model_length=8192, chunk_deadlines=chunk_deadlines, speculation=speculation
    )
    scheduler = Scheduler(config, LimitController(Limits(max_batched_tokens=2048, itl_target=0.05)))
    seen: Counter[object] = Counter()
    plan: Plan | None = None
    for step in range(STEPS):
        if step == 0 or step % 8 == 6:  # a long prompt is computed while every 32nd step carries no drafts
            length = 4000 if step % 16 == 14 else 40
            prompt = [100 + step, *(at % CIRCLE for at in range(1, length))]  # no two share a prefix
            scheduler.submit(Request(str(step), prompt, 300, step * 0.05))
        if plan is None:
            plan = scheduler.plan(step * 0.05, MODEL)
        assert plan is not None
        following = scheduler.plan_ahead(step * 0.05, MODEL)
        seen[plan.mode] += 1
        assert (plan.mode is StepMode.DRAFTING) == (plan.draft_tokens > 0)
        assert (plan.mode is StepMode.BOUNDED) == (plan.deadline is not None)
        assert not (plan.draft_tokens and plan.deadline)
        if following is not None:
            seen["ahead"] += 1
            assert plan.mode is StepMode.PLAIN
            assert following.mode is not StepMode.DRAFTING
            assert any(PENDING in row.tokens for row in following.rows) or following.work.prefill_tokens
        sampled, accepted = results(plan)
        scheduler.settle(plan, sampled, (step + 1) * 0.05, accepted=accepted)
        if following is None:
            scheduler.check()
        plan = following
    return seen


@pytest.mark.parametrize("chunk_deadlines", [False, True])
@pytest.mark.parametrize("speculation", ["off", "on", "auto"])
def test_drafts_deadlines_and_overlap_exclude_one_another(speculation: Mode, chunk_deadlines: bool) -> None:
    seen = modes_of_a_run(speculation, chunk_deadlines)
    assert seen["ahead"] > 0
    assert (seen[StepMode.DRAFTING] > STEPS / 4) == (speculation != "off")
    assert (seen[StepMode.BOUNDED] > 0) == chunk_deadlines

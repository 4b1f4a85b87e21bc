"""Step deadlines: only a step whose single chunk is bounded by a target, and whose end no request needs, has one."""

from sluice_engine.control.step_deadline import Cut
from sluice_engine.control.tail_correction import MIN_RATIOS
from sluice_engine.request import Request
from sluice_engine.scheduler import Plan, Scheduler
from sluice_perfmodel.step_time import StepTimeModel
from tests.engine.scheduler.test_prefill_budget import MODEL, engine, request, step

TARGET = 0.05  # seconds


def beside_streams(*targets: float | None, speculation: str = "off") -> Scheduler:
    """Ten streams that decode, with these targets and the default one."""
    scheduler = engine(tokens=2048, itl_target=TARGET, chunk_deadlines=True, speculation=speculation)
    for index in range(10):
        target = targets[index] if index < len(targets) else None
        scheduler.submit(request(f"stream {index}", 10, itl_target=target))
    step(scheduler)
    return scheduler


def planned(scheduler: Scheduler, *prompts: Request, model: StepTimeModel = MODEL) -> Plan:
    for each in prompts:
        scheduler.submit(each)
    plan = scheduler.plan(0.0, model)
    assert plan is not None
    return plan


def test_a_long_prompt_beside_decoding_requests_has_the_target_as_its_deadline() -> None:
    plan = planned(beside_streams(None, 0.04), request("long", 8000))
    assert plan.deadline is not None
    assert plan.deadline.seconds == 0.04
    assert plan.deadline.tokens == len(plan.rows[-1].tokens) == plan.work.prefill_tokens
    assert 0.0 < plan.deadline.share < 1.0
    assert not plan.certain


def test_only_a_single_unfinished_chunk_beside_decoding_requests_has_a_deadline() -> None:
    ends = planned(beside_streams(), request("short", 100))
    assert ends.work.prefill_tokens == 100 and ends.deadline is None
    two = planned(beside_streams(), request("short", 100), request("long", 8000))
    assert len(two.rows) == 12 and two.timed and two.deadline is None
    alone = engine(tokens=2048, chunk_deadlines=True)
    assert planned(alone, request("long", 8000)).deadline is None
    cannot = engine(tokens=2048, itl_target=TARGET)
    cannot.submit(request("stream", 10))
    step(cannot)
    assert planned(cannot, request("long", 8000)).deadline is None


def overrun(scheduler: Scheduler) -> None:
    """One step of six took half as long again as predicted, the others as long."""
    for number in range(4 * MIN_RATIOS):
        scheduler.state.correction.observe(1.5 if number % 6 == 0 else 1.0, 1.0)


def test_only_a_chunk_that_can_be_cut_is_planned_without_the_reserve_for_slow_steps() -> None:
    plain, slow = planned(beside_streams(), request("long", 8000)), beside_streams()
    overrun(slow)
    assert planned(slow, request("long", 8000)).work.prefill_tokens == plain.work.prefill_tokens
    several = beside_streams()
    overrun(several)
    plan = planned(several, request("first", 300), request("second", 8000))
    assert plan.deadline is None and MODEL.predict(plan.work) <= TARGET / 1.5
    drafting = beside_streams(speculation="on")
    overrun(drafting)
    plan = planned(drafting, request("long", 8000))
    assert plan.deadline is None and MODEL.predict(plan.work) <= TARGET / 1.5


def test_a_target_that_is_missed_anyway_cuts_no_chunk() -> None:
    """Decoding alone takes longer than one client asks for, or nearly: the others' target is the deadline, or none."""
    model = StepTimeModel(base=0.01984, prefill_token=1e-4, sequence=1e-5, steps=1000)
    lost = planned(beside_streams(0.019), request("long", 8000), model=model)
    assert lost.deadline is not None and lost.deadline.seconds == TARGET
    nearly = planned(beside_streams(0.0201), request("long", 8000), model=model)
    assert nearly.timed and nearly.deadline is None
    barely = beside_streams(0.025)
    overrun(barely)  # in slow steps decoding alone takes longer than 0.025; a chunk that can be cut meets it in others
    plan = planned(barely, request("long", 8000), model=model)
    assert plan.deadline is not None and plan.deadline.seconds == 0.025 >= model.predict(plan.work)
    assert plan.work.prefill_tokens >= 16


def test_deadlines_come_back_after_steps_that_overshot_them_by_far() -> None:
    scheduler = beside_streams()
    for _ in range(MIN_RATIOS):
        scheduler.state.overshoot.observe(1.1, 1.0)
    plan = planned(scheduler, request("long", 8000))
    assert plan.deadline is not None and plan.deadline.seconds == TARGET / 1.1
    scheduler = beside_streams()
    for _ in range(MIN_RATIOS):
        scheduler.state.overshoot.observe(99.0, 1.0)
    plan = planned(scheduler, request("long", 8000), model=StepTimeModel(base=0.03, prefill_token=1e-4, steps=1000))
    assert plan.deadline is not None and plan.deadline.seconds == (0.03 + TARGET) / 2


def test_cut_tokens_are_computed_by_the_next_step_and_are_not_in_the_prefix_index() -> None:
    scheduler = beside_streams()
    plan = planned(scheduler, request("long", 8000))
    shortened = plan.shortened(Cut(kept=100, equivalent_tokens=150.0))
    scheduler.settle(shortened, [7] * 10, 0.05)
    scheduler.check()
    long = scheduler.requests["long"]
    assert (long.computed, len(long.blocks)) == (100, 7)
    copy = Request("copy", list(long.known), 5, 0.0)
    scheduler.state.tables.hash_known(copy)
    assert scheduler.state.tables.match(copy) == long.blocks[:6]
    again = scheduler.plan(0.05, MODEL)
    assert again is not None and again.rows[-1].start == 100
    assert again.rows[-1].tokens == tuple(long.known[100 : 100 + len(again.rows[-1].tokens)])

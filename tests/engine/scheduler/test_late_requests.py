"""Requests that miss their TTFT deadline in any case: they yield to those that can meet it, and never wait for nothing."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Plan, Scheduler, SchedulerConfig, steady_steps
from sluice_engine.scheduler.chunking import LONGEST_STEP, chunk_context
from sluice_engine.scheduler.load_shedding.lateness import YIELD_SECONDS
from sluice_engine.scheduler.policies import POLICIES
from sluice_perfmodel.step_time import StepTimeModel, StepWork
from sluice_sim.cluster.request import RequestRecord
from sluice_sim.engine.exact import SimEngine
from sluice_sim.engine.offered_request import OfferedRequest
from sluice_sim.engine.step_times import Profiled
from sluice_sim.traces import Arrival

# A small model on a processor: 6,500 tokens take 11 s, seven take 18 ms, a decoding step of one request 11 ms.
MODEL = StepTimeModel(base=0.01, prefill_token=1.2e-3, prefill_context=1.5e-7, sequence=1e-3, kv_token=1e-8, steps=1000)
TTFT, ITL = 2.0, 0.1
LONG, SHORT = 6500, 7


def engine(policy: str, seqs: int = 56, blocks: int = 4096, **bounds: float) -> Scheduler:
    config = SchedulerConfig(
        num_blocks=blocks, max_model_length=8192, max_num_seqs=seqs, policy=policy, prefix_cache=False
    )
    values: dict[str, float] = {
        "concurrency_min": seqs,
        "concurrency_max": seqs,
        "ttft_target": TTFT,
        "itl_target": ITL,
    }
    return Scheduler(config, LimitController(Limits(**(values | bounds))))  # type: ignore[arg-type]


def request(name: str, prompt: int, at: float, max_tokens: int = 1, **fields: object) -> Request:
    return Request(name, [1] * prompt, max_tokens, at, **fields)  # type: ignore[arg-type]


def step(scheduler: Scheduler, now: float) -> tuple[Plan, float]:
    """One step, and when it ends."""
    plan = scheduler.plan(now, MODEL)
    assert plan is not None
    ended = now + MODEL.predict(plan.work)
    scheduler.settle(plan, [7] * sum(row.samples for row in plan.rows), ended)
    scheduler.check()
    return plan, ended


def alone(one: Request) -> float:
    """Seconds of the rest of the prompt, computed alone."""
    left = one.remaining
    return MODEL.predict(StepWork(prefill_tokens=left, prefill_context=chunk_context(left, one.computed)))


def late(scheduler: Scheduler, one: Request, now: float) -> bool:
    """The rule's definition, for prompts that are running or waiting."""
    if one.slot < 0 and one.request_id in scheduler.waiting._late:
        return True
    target = TTFT if one.ttft_target is None else one.ttft_target
    due = one.arrived_at + target
    given_up = one.slot < 0 or now - due <= YIELD_SECONDS
    return not one.delivered and not one.preemptions and now + alone(one) > due and given_up


# --- order and work conservation -------------------------------------------------------------------------------

LOADS = st.fixed_dictionaries(
    {
        "policy": st.sampled_from(sorted(POLICIES)),
        "seed": st.integers(0, 2**32),
        "rate": st.sampled_from([1.0, 4.0, 12.0]),
        "seqs": st.sampled_from([1, 3, 12]),
        "blocks": st.sampled_from([512, 600, 4096]),
    }
)


@settings(max_examples=80, deadline=None)
@given(LOADS)
def test_in_every_step_requests_in_time_come_before_late_ones_and_no_request_waits_beside_an_idle_engine(
    load: dict[str, object],
) -> None:
    scheduler = engine(str(load["policy"]), int(str(load["seqs"])), int(str(load["blocks"])))
    dice, now, submitted, next_at = random.Random(int(str(load["seed"]))), 0.0, 0, 0.0
    scheduler.state.model = MODEL
    while submitted < 40 or scheduler.requests:
        while submitted < 40 and next_at <= now:
            prompt = dice.choice((5, 40, 400, 3000, 8000))
            scheduler.submit(
                request(
                    str(submitted), prompt, next_at, dice.randint(1, 20),
                    tenant=dice.choice("ab"), priority=dice.randint(-3, 3),
                )
            )  # fmt: skip
            submitted += 1
            next_at += dice.expovariate(float(str(load["rate"])))
        if not scheduler.requests:
            now = next_at
            continue
        was_late = {name: late(scheduler, one, now) for name, one in scheduler.requests.items()}
        now = _checked_step(scheduler, was_late, now)


def _checked_step(scheduler: Scheduler, was_late: dict[str, bool], now: float) -> float:
    plan = scheduler.plan(now, MODEL)
    assert plan is not None  # some request runs, whatever is late
    prompts = [row.request_id for row in plan.rows[plan.work.sequences :]]
    order = [was_late[name] for name in prompts]
    assert order == sorted(order)
    if True in order:
        served = {row.request_id for row in plan.rows}
        left = [one for one in scheduler.running if one.remaining > 1 and one.request_id not in served]
        assert plan.preempted or not any(not was_late[one.request_id] for one in left)
    if len(scheduler.waiting) and not prompts and plan.preempted is None:
        head = scheduler.waiting.head(now)
        assert head is not None
        full = len(scheduler.running) >= scheduler.state.places
        assert full or not scheduler.state.admission.can_start(head.request, [])
    ended = now + MODEL.predict(plan.work)
    scheduler.settle(plan, [7] * sum(row.samples for row in plan.rows), ended)
    scheduler.check()
    return ended


@pytest.mark.parametrize("policy", POLICIES)
def test_a_late_request_starts_at_once_on_an_engine_that_only_decodes(policy: str) -> None:
    scheduler = engine(policy)
    scheduler.submit(request("stream", SHORT, 0.0, max_tokens=100))
    _, now = step(scheduler, 0.0)
    scheduler.submit(request("late", LONG, now))
    plan, _ = step(scheduler, now)
    assert [row.request_id for row in plan.rows] == ["stream", "late"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_head_that_has_become_late_in_the_queue_does_not_block_the_next_one(policy: str) -> None:
    scheduler = engine(policy, seqs=1)
    scheduler.submit(request("runs", SHORT, 0.0, max_tokens=300, priority=50))
    _, now = step(scheduler, 0.0)
    scheduler.submit(request("first", 1000, now, ttft_target=60.0))
    scheduler.submit(request("second", SHORT, now + 1.0, ttft_target=100.0, priority=-50))
    while "runs" in scheduler.requests:
        _, now = step(scheduler, now)
    plan, _ = step(scheduler, 62.0)
    assert [row.request_id for row in plan.rows] == ["second"]


def test_decode_steps_are_not_taken_at_once_while_the_head_without_memory_may_become_late() -> None:
    scheduler = engine("fcfs", seqs=3, blocks=520)
    scheduler.submit(request("runs", 7000, 0.0, max_tokens=400, ttft_target=60.0))
    now = 0.0
    while scheduler.requests["runs"].remaining != 1:
        _, now = step(scheduler, now)
    scheduler.submit(request("head", 2000, now, ttft_target=4.0))
    scheduler.submit(request("small", SHORT, now, max_tokens=300, ttft_target=100.0))
    late_from = now + 4.0 - (alone(scheduler.requests["head"]) - MODEL.base)
    while now <= late_from:
        assert steady_steps(scheduler.state) == 0
        plan, now = step(scheduler, now)
        assert len(plan.rows) == 1
    plan, now = step(scheduler, now)
    assert [row.request_id for row in plan.rows] == ["runs", "small"]
    assert steady_steps(scheduler.state) > 0  # the only waiting request is late: its place is final


def test_with_fair_a_late_request_of_the_tenant_served_least_waits_for_others_in_time() -> None:
    scheduler = engine("fair", seqs=1)
    scheduler.submit(request("runs", SHORT, 0.0, max_tokens=3, tenant="a"))
    _, now = step(scheduler, 0.0)
    scheduler.submit(request("late", LONG, now, tenant="b"))
    scheduler.submit(request("in time", SHORT, now, tenant="a"))
    scheduler.state.counters.charge("a", 1e6)
    order: list[str] = []
    while scheduler.requests:
        plan, now = step(scheduler, now)
        order += [row.request_id for row in plan.rows if row.request_id not in order]
    assert order == ["runs", "in time", "late"]


def test_a_request_that_has_run_or_has_no_deadline_is_never_late() -> None:
    for more in ({"ttft_target": 1e6}, {"delivered": True}, {"preemptions": 1}):
        scheduler = engine("fcfs")
        scheduler.submit(request("stream", SHORT, 0.0))
        _, now = step(scheduler, 0.0)
        scheduler.submit(request("long", LONG, now, **more))
        _, now = step(scheduler, now)
        scheduler.submit(request("short", SHORT, now))
        plan, _ = step(scheduler, now)
        assert plan.rows[0].request_id == "long"


# --- starvation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_a_late_running_prompt_takes_its_place_again_after_it_has_yielded_long_enough(policy: str) -> None:
    """Beside requests in time that would fill the engine forever."""
    scheduler, now, number = engine(policy), 0.0, 0
    scheduler.submit(request("first", SHORT, now))
    _, now = step(scheduler, now)
    scheduler.submit(request("long", LONG, now))
    due, own = now + TTFT, alone(scheduler.requests["long"])
    _, now = step(scheduler, now)  # it is alone and runs
    while "long" in scheduler.requests:
        while len(scheduler.waiting) < 4:
            scheduler.submit(request(str(number), 300, now))
            number += 1
        plan, now = step(scheduler, now)
        if any(row.request_id == "long" for row in plan.rows[:1]):
            assert now >= due + YIELD_SECONDS
        assert now < due + YIELD_SECONDS + 1.2 * own + 10.0


# --- the longest step ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late_last", [True, False])
def test_a_step_with_prompts_takes_a_quarter_of_the_ttft_target_at_most(late_last: bool) -> None:
    config = SchedulerConfig(num_blocks=4096, max_model_length=8192, late_last=late_last)
    scheduler = Scheduler(config, LimitController(Limits(ttft_target=TTFT, itl_target=ITL)))
    scheduler.submit(request("long", LONG, 0.0))
    plan, ended = step(scheduler, 0.0)
    if late_last:
        assert 0.8 * LONGEST_STEP * TTFT < ended <= LONGEST_STEP * TTFT
    else:
        assert plan.work.prefill_tokens == 2048


def test_a_ttft_target_shorter_than_any_step_leaves_prompts_their_progress() -> None:
    scheduler, now = engine("fcfs", ttft_target=1e-3), 0.0
    scheduler.submit(request("long", LONG, 0.0))
    steps = 0
    while scheduler.requests:
        _, now = step(scheduler, now)
        steps += 1
    assert steps <= LONG  # at least a token in each


# --- short prompts behind long ones ----------------------------------------------------------------------------


def serve(policy: str, arrivals: list[Arrival]) -> tuple[list[RequestRecord], list[Plan]]:
    """The exact simulator's records of these arrivals, in their order, and the plans of single steps."""
    config = SchedulerConfig(num_blocks=4096, max_model_length=8192, max_num_seqs=56, policy=policy)
    bounds = Limits(concurrency_min=56, concurrency_max=56, ttft_target=TTFT, itl_target=ITL)
    plans: list[Plan] = []
    sim = SimEngine(Profiled(MODEL), config, bounds, 0.0, on_plan=plans.append)
    records = [RequestRecord(one.at, one.prompt, one.output) for one in arrivals]
    for number, (one, record) in enumerate(zip(arrivals, records, strict=True)):
        sim.run_until(one.at)
        assert sim.submit(OfferedRequest(number, one, record)) is None
    sim.run_until(300.0)
    assert all(record.ended_at is not None for record in records)
    return records, plans


@pytest.mark.parametrize("streams", [0, 6])
@pytest.mark.parametrize("longs", [1, 4])
@pytest.mark.parametrize("policy", POLICIES)
def test_short_prompts_behind_long_ones_are_in_time_and_the_long_ones_hardly_later(
    policy: str, longs: int, streams: int
) -> None:
    before = [
        Arrival(0.0, 100, 100),
        *(Arrival(0.0, 100, 1000) for _ in range(streams)),
    ]  # the first one fits the model
    long = [Arrival(2.0 + 0.01 * number, LONG, 4) for number in range(longs)]
    short = [Arrival(2.5 + 0.5 * number, SHORT, 8) for number in range(8)]
    without, _ = serve(policy, [*before, *long])
    records, plans = serve(policy, [*before, *long, *short])
    assert all(record.ttft is not None and record.ttft <= 1.0 for record in records[-8:])
    for one, same in zip(records[1 + streams : -8], without[1 + streams :], strict=True):
        assert one.ttft is not None and same.ttft is not None
        assert one.ttft <= 1.3 * same.ttft
    assert all(MODEL.predict(plan.work) <= ITL + 1e-9 for plan in plans if plan.work.sequences)

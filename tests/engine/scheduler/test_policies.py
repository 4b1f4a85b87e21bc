"""Policies: the order of service, the starvation bound, and the cost of the queue."""

import math
import random
import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Plan, Scheduler, SchedulerConfig
from sluice_engine.scheduler.policies import POLICIES, PrefillEstimate
from sluice_engine.scheduler.policies.edf import PATIENCE_SECONDS
from sluice_engine.scheduler.policies.priority import AGEING_SECONDS
from sluice_engine.scheduler.policies.tenants import MAX_IDLE_COUNTERS, OUTPUT_WEIGHT, PROMPT_WEIGHT, TenantCounters
from sluice_engine.scheduler.waiting_queue import WaitingQueue
from sluice_perfmodel.step_time import StepTimeModel

MODEL = StepTimeModel(base=0.01, prefill_token=1e-4, sequence=1e-4, steps=1000)


def engine(policy: str, seqs: int = 1, blocks: int = 256, **bounds: float) -> Scheduler:
    config = SchedulerConfig(num_blocks=blocks, max_model_length=1024, max_num_seqs=seqs, policy=policy)
    values: dict[str, float] = {"concurrency_max": seqs, "max_batched_tokens": 512, "max_queue": 100_000}
    return Scheduler(config, LimitController(Limits(**(values | bounds))))  # type: ignore[arg-type]


def request(name: str, prompt: int = 8, max_tokens: int = 1, at: float = 0.0, **fields: object) -> Request:
    known = [hash(name) % 10_007 + position for position in range(prompt)]
    return Request(name, known, max_tokens, at, **fields)  # type: ignore[arg-type]


def step(scheduler: Scheduler, now: float = 0.0, model: StepTimeModel | None = None) -> Plan:
    plan = scheduler.plan(now, model)
    assert plan is not None
    scheduler.settle(plan, [1] * sum(row.samples for row in plan.rows), now)
    scheduler.check()
    return plan


def served(scheduler: Scheduler, now: float = 0.0, model: StepTimeModel | None = None) -> list[str]:
    order: list[str] = []
    while scheduler.requests:
        plan = step(scheduler, now, model)
        order += [row.request_id for row in plan.rows if row.request_id not in order]
    return order


def test_an_unknown_policy_is_rejected_with_the_list_of_policies() -> None:
    with pytest.raises(ValueError, match="'lifo'; choose one of fcfs, priority, srpf, edf, fair"):
        SchedulerConfig(num_blocks=64, max_model_length=64, policy="lifo")


def test_fcfs_serves_in_order_of_arrival_whatever_other_fields_requests_have() -> None:
    scheduler = engine("fcfs")
    scheduler.submit(request("long", prompt=200, priority=-5))
    scheduler.submit(request("short", priority=5, ttft_target=100.0))
    assert served(scheduler) == ["long", "short"]


def test_priority_goes_first_until_the_others_have_waited_long_enough() -> None:
    scheduler = engine("priority")
    scheduler.submit(request("low", at=0.0, priority=-1))
    scheduler.submit(request("high", at=AGEING_SECONDS * 2 - 0.2, priority=1))
    scheduler.submit(request("too late", at=AGEING_SECONDS * 2 + 0.2, priority=1))
    assert served(scheduler, now=9.0) == ["high", "low", "too late"]


def test_srpf_serves_short_prompts_first_and_counts_what_is_cached() -> None:
    scheduler = engine("srpf")
    first = request("first", prompt=400)
    scheduler.submit(first)
    step(scheduler)
    scheduler.submit(request("long", prompt=300))
    scheduler.submit(request("medium", prompt=100))
    scheduler.submit(Request("cached", first.known[:400], 1, 0.0))
    assert served(scheduler) == ["cached", "medium", "long"]


def test_edf_serves_by_the_latest_moment_at_which_a_prompt_can_begin() -> None:
    scheduler = engine("edf", ttft_target=2.0)
    scheduler.submit(request("default"))
    step(scheduler, model=MODEL)  # the scheduler now knows how long prompts take
    scheduler.submit(request("loose", ttft_target=5.0))
    scheduler.submit(request("default again"))
    scheduler.submit(request("tight", ttft_target=0.8))
    scheduler.submit(request("long", prompt=1000, ttft_target=0.85))  # takes 0.1 s
    assert served(scheduler, model=MODEL) == ["long", "tight", "default again", "loose"]


def test_edf_postpones_missed_deadlines_for_a_bounded_time() -> None:
    scheduler = engine("edf")
    scheduler.submit(request("lost", at=0.0, ttft_target=0.5))
    scheduler.submit(request("alive", at=9.5, ttft_target=1.0))
    late = PATIENCE_SECONDS + 10.0
    scheduler.submit(request("much later", at=late, ttft_target=1.0))
    assert served(scheduler, now=10.0) == ["alive", "lost", "much later"]


def test_an_urgent_prompt_overtakes_one_that_is_being_computed() -> None:
    scheduler = engine("edf", seqs=2, max_batched_tokens=64)
    scheduler.submit(request("long", prompt=200, ttft_target=60.0))
    step(scheduler)
    scheduler.submit(request("urgent", prompt=40, ttft_target=0.5))
    assert [row.request_id for row in step(scheduler).rows] == ["urgent", "long"]


def test_fair_turns_to_the_tenant_that_was_served_least() -> None:
    scheduler = engine("fair")
    for index in range(4):
        scheduler.submit(request(f"a{index}", prompt=100, tenant="a"))
    for index in range(2):
        scheduler.submit(request(f"b{index}", prompt=150, tenant="b"))
    assert served(scheduler) == ["a0", "b0", "a1", "b1", "a2", "a3"]


def test_counters_break_ties_of_the_other_policies() -> None:
    scheduler = engine("priority")
    scheduler.submit(request("g0", tenant="greedy"))
    scheduler.submit(request("m0", tenant="modest"))
    scheduler.state.counters.charge("greedy", 1000.0)
    scheduler.submit(request("g1", tenant="greedy"))
    scheduler.submit(request("m1", tenant="modest"))
    assert served(scheduler) == ["g0", "m0", "m1", "g1"]


# --- virtual token counters ------------------------------------------------------------------------------------


def test_a_tenant_that_returns_is_lifted_to_the_least_counter_of_waiting_tenants() -> None:
    counters = TenantCounters()
    counters.arrive("a")
    counters.arrive("b")
    counters.charge("a", 500.0)
    counters.charge("b", 300.0)
    counters.arrive("back")
    assert counters.served("back") == 300.0
    for tenant in ("a", "b", "back"):
        counters.depart(tenant)
    counters.arrive("alone")
    assert counters.served("alone") == 300.0  # the last that left the queue


def test_the_least_is_found_whatever_was_charged_since() -> None:
    counters, dice = TenantCounters(), random.Random(5)
    waiting: dict[str, int] = {}
    for _ in range(3000):
        tenant = str(dice.randrange(8))
        act = dice.random()
        if act < 0.4:
            counters.arrive(tenant)
            waiting[tenant] = waiting.get(tenant, 0) + 1
        elif act < 0.7 and waiting.get(tenant):
            counters.depart(tenant)
            waiting[tenant] -= 1
        else:
            counters.charge(tenant, dice.randrange(50))
        least = counters.least()
        there = [counters.served(each) for each, count in waiting.items() if count]
        assert (least is None) == (not there)
        assert least is None or counters.served(least) == min(there)


def test_counters_of_idle_tenants_are_dropped_in_time() -> None:
    counters = TenantCounters()
    for index in range(10 * MAX_IDLE_COUNTERS):
        counters.arrive(str(index))
        counters.charge(str(index), 1.0)
        counters.depart(str(index))
    assert len(counters._served) <= 2 * MAX_IDLE_COUNTERS + 1


@pytest.mark.parametrize("seed", range(3))
def test_two_backlogged_tenants_differ_by_at_most_the_papers_bound(seed: int) -> None:
    """|W_f − W_g| ≤ 2·max(w_p·L_input, w_q·M), Sheng et al., OSDI'24, theorem 4.4: L_input the longest prompt, M the
    tokens that the pool holds. One tenant sends three times as many requests, much longer ones."""
    dice = random.Random(seed)
    scheduler = engine("fair", seqs=16, blocks=128)
    longest, pool = 300, 128 * 16
    bound = 2 * max(PROMPT_WEIGHT * longest, OUTPUT_WEIGHT * pool)
    got = {"greedy": 0.0, "modest": 0.0}
    worst = 0.0
    for number in range(1500):
        for tenant, many, prompt, output in (("greedy", 3, longest, 60), ("modest", 1, 60, 20)):
            backlog = sum(each.tenant == tenant for each in scheduler.waiting)
            for index in range(max(0, 12 - backlog) and many):
                name = f"{tenant}-{number}-{index}"
                scheduler.submit(request(name, dice.randint(1, prompt), dice.randint(1, output), tenant=tenant))
        before = {each.request_id: each.first_scheduled_at for each in scheduler.requests.values()}
        plan = step(scheduler, float(number))
        for row in plan.rows:
            tenant = row.request_id.split("-")[0]
            first = before[row.request_id] is None and row.start == 0
            got[tenant] += OUTPUT_WEIGHT * row.samples + (PROMPT_WEIGHT * _prompt(scheduler, row.request_id, first))
        worst = max(worst, abs(got["greedy"] - got["modest"]))
    assert min(got.values()) > 5 * bound  # both were served far more than the bound
    assert worst <= bound


def _prompt(scheduler: Scheduler, request_id: str, first: bool) -> int:
    here = scheduler.requests.get(request_id)
    return here.prompt_length if first and here is not None else 0


# --- starvation ------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["fcfs", "priority", "srpf", "edf"]),
    st.lists(
        st.tuples(st.floats(0, 50), st.integers(1, 900), st.integers(-100, 100), st.floats(0.1, 30)),
        min_size=2,
        max_size=30,
    ),
    st.lists(st.floats(0, 200), max_size=60),
)
def test_no_request_is_overtaken_by_one_that_arrives_after_the_overtake_window(
    name: str, coming: list[tuple[float, int, int, float]], times: list[float]
) -> None:
    """The starvation bound of each policy: only arrivals within `overtake_window` seconds may be served before it."""
    policy = POLICIES[name]
    queue = WaitingQueue(policy, TenantCounters())
    clock = iter(sorted(times))
    now = 0.0
    estimates: dict[str, PrefillEstimate] = {}
    popped: list[Request] = []
    for order, (at, tokens, priority, target) in enumerate(sorted(coming)):
        while len(queue) and (now := next(clock, math.inf)) < at:
            popped.append(_pop(queue, now))
        each = Request(str(order), [1] * tokens, 1, at, priority=priority, ttft_target=target, order=order)
        estimates[each.request_id] = PrefillEstimate(tokens, tokens * 1e-4, 2.0)
        queue.push(each, estimates[each.request_id])
        now = at
    while len(queue):
        now = next(clock, now)
        popped.append(_pop(queue, now))
    assert len(popped) == len(coming)
    for index, late in enumerate(popped):
        most = policy.overtake_window(late, estimates[late.request_id])
        for early in popped[:index]:
            assert early.arrived_at <= late.arrived_at + most + 1e-9


def _pop(queue: WaitingQueue, now: float) -> Request:
    entry = queue.head(now)
    assert entry is not None
    queue.remove(entry.request)
    return entry.request


# --- the queue's cost ------------------------------------------------------------------------------------------


class _Counted(float):
    """A number that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: object) -> bool:
        _Counted.compared += 1
        return float.__lt__(self, other)  # type: ignore[operator]

    def __eq__(self, other: object) -> bool:
        _Counted.compared += 1
        return float.__eq__(self, other)

    __hash__ = float.__hash__


STEPS = 200


def _operations(policy: str, waiting: int) -> int:
    """Calls and comparisons of STEPS steps with so many waiting behind 32 that run."""
    scheduler = engine(policy, seqs=32)
    counted = POLICIES[policy]
    number = counted.number
    scheduler.waiting.policy = type(counted)(
        counted.name,
        lambda request, estimate: _Counted(number(request, estimate)),
        counted.overtake_window,
        counted.patience,
        counted.by_tenant,
    )
    for index in range(32 + waiting):
        scheduler.submit(request(str(index), 8, 30, at=index * 0.001, tenant=str(index % 7), priority=index % 5))
    step(scheduler)
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    _Counted.compared = 0
    sys.setprofile(count)
    try:
        for number_ in range(STEPS):
            plan = scheduler.plan(1.0 + number_ * 0.01)
            assert plan is not None
            scheduler.settle(plan, [1] * sum(row.samples for row in plan.rows), 1.0 + number_ * 0.01)
            _ = scheduler.tokens_in_flight
    finally:
        sys.setprofile(None)
    return calls + _Counted.compared


@pytest.mark.parametrize("policy", POLICIES)
def test_ten_thousand_waiting_requests_do_not_slow_a_step(policy: str) -> None:
    """In operations and not as a share of a step, which would forbid making the step itself cheaper: at most 135 more
    (`edf` renews each request that has waited too long, once), about a tenth of a step of 32 requests."""
    assert _operations(policy, 10_000) - _operations(policy, 400) <= 135 * STEPS


def test_requests_cancelled_in_the_middle_of_the_queue_leave_few_stale_entries() -> None:
    for policy in POLICIES:
        scheduler = engine(policy)
        names = [str(index) for index in range(2000)]
        for name in names:
            scheduler.submit(request(name, tenant=name[-1]))
        random.Random(1).shuffle(names)
        for name in names[:-1]:
            assert scheduler.cancel(name)
        scheduler.check()
        assert sum(len(heap) for heap in scheduler.waiting._heaps.values()) < 100
        assert served(scheduler) == names[-1:]


# --- whose blocks go -------------------------------------------------------------------------------------------


def test_without_free_blocks_the_lowest_priority_is_preempted_first_then_the_latest() -> None:
    scheduler = engine("priority", seqs=3, blocks=72)
    for name, priority, at in (("low", -3, 0.0), ("early", 0, 0.1), ("late", 0, 0.2)):
        scheduler.submit(request(name, prompt=330, max_tokens=200, at=at, priority=priority))
    preempted = [preempted_id for _ in range(150) if (preempted_id := step(scheduler, 1.0).preempted)]
    assert preempted[0] == "low"
    scheduler = engine("fcfs", seqs=3, blocks=72)
    for name in ("first", "second", "third"):
        scheduler.submit(request(name, prompt=330, max_tokens=200))
    preempted = [preempted_id for _ in range(150) if (preempted_id := step(scheduler).preempted)]
    assert preempted[0] == "third"


def test_the_preemption_key_is_a_fixed_order() -> None:
    scheduler = engine("priority", seqs=8)
    for index in range(8):
        scheduler.submit(request(str(index), 20, 5, at=index * 1.0, priority=(index * 37) % 11))
    step(scheduler, 10.0)
    strengths = [(each.arrived_at - AGEING_SECONDS * each.priority) for each in scheduler.running]
    assert all(a <= b for a, b in pairwise(strengths))

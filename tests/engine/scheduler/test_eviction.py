"""A full queue rejects the newcomer or evicts a less important waiting request; each request ends exactly once."""

import random
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.sampling_params import SamplingParams
from sluice_engine.scheduler import Scheduler, SchedulerConfig
from sluice_engine.scheduler.policies import POLICIES
from sluice_engine.scheduler.policies.tenants import OUTPUT_WEIGHT, PROMPT_WEIGHT
from sluice_perfmodel.step_time import StepTimeModel

MODEL = StepTimeModel(base=0.01, prefill_token=1e-3, steps=1000)


def scheduler(policy: str = "fcfs", queue: int = 2, places: int = 1, blocks: int = 64) -> Scheduler:
    config = SchedulerConfig(num_blocks=blocks, max_model_length=512, max_num_seqs=places, policy=policy)
    return Scheduler(config, LimitController(Limits(concurrency_max=places, max_queue=queue, max_batched_tokens=256)))


def request(name: str, prompt: int = 8, max_tokens: int = 4, **fields: object) -> Request:
    known = [hash(name) % 10_007 + position for position in range(prompt)]
    return Request(name, known, max_tokens, 0.0, **fields)  # type: ignore[arg-type]


def refused(engine: Scheduler, one: Request, *samples: Request) -> tuple[str, str] | None:
    rejection = engine.submit(one, samples)
    engine.check()
    return None if rejection is None else (rejection.request_id, rejection.reason)


def step(engine: Scheduler, now: float = 0.0) -> list[str]:
    """One step; the requests that end in it."""
    plan = engine.plan(now)
    if plan is None:
        return []
    outcomes = engine.settle(plan, [1] * sum(len(row.sampled_ids) for row in plan.rows if row.samples), now)
    engine.check()
    return [outcome.request_id for outcome in outcomes if outcome.finish is not None]


def test_a_higher_priority_evicts_the_latest_request_of_the_lowest() -> None:
    engine = scheduler(queue=3)
    engine.submit(request("runs", priority=-100, max_tokens=40))
    step(engine)
    for name, priority in (("low", -2), ("lowest", -3), ("lowest too", -3)):
        assert refused(engine, request(name, priority=priority)) is None
    engine.state.residence = 4.0
    rejection = engine.submit(request("high", priority=1))
    assert rejection is not None
    assert (rejection.request_id, rejection.reason, rejection.retry_after) == ("lowest too", "displaced", 4 * 4.0)
    assert "higher priority" in rejection.message
    assert refused(engine, request("lower", priority=-4)) == ("lower", "queue_full")
    assert refused(engine, request("equal", priority=-3)) == ("equal", "queue_full")
    assert refused(engine, request("higher", priority=2)) == ("lowest", "displaced")
    assert {each.request_id for each in engine.waiting} == {"low", "high", "higher"}


def test_within_a_priority_requests_of_the_tenant_over_its_share_are_evicted_until_shares_are_equal() -> None:
    engine = scheduler(queue=6)
    engine.submit(request("runs", max_tokens=40))
    step(engine)
    for index in range(6):
        assert refused(engine, request(f"a{index}", tenant="a")) is None
    assert [refused(engine, request(f"b{index}", tenant="b")) for index in range(4)] == [
        ("a5", "displaced"),
        ("a4", "displaced"),
        ("a3", "displaced"),
        ("b3", "queue_full"),  # both have three
    ]
    assert refused(engine, request("a6", tenant="a")) == ("a6", "queue_full")
    engine.state.counters.charge("a", 100.0)
    assert refused(engine, request("b4", tenant="b")) == ("a2", "displaced")


def test_a_request_that_has_run_is_never_evicted() -> None:
    engine = scheduler(queue=0, places=2, blocks=32)
    for name in ("first", "second"):
        engine.submit(request(name, prompt=240, max_tokens=200, priority=-100))
    while not engine.preemptions:
        step(engine)
    assert len(engine.waiting) == 1
    assert refused(engine, request("high", priority=100)) == ("high", "queue_full")


def test_a_sample_group_is_evicted_as_a_whole_and_never_once_a_sample_has_run() -> None:
    engine = scheduler(queue=1)
    engine.submit(request("runs", max_tokens=3))
    step(engine)
    low = request("low", priority=-1, max_tokens=1)
    twins = [low.another_sample(f"low-{index}", SamplingParams()) for index in (1, 2)]
    assert refused(engine, low, *twins) is None
    assert refused(engine, request("high", max_tokens=1)) == ("low", "displaced")
    assert set(engine.requests) == {"runs", "high"}
    while engine.requests:
        step(engine)
    low = request("low", priority=-1, max_tokens=2)
    assert refused(engine, low, low.another_sample("low-1", SamplingParams())) is None
    step(engine)  # its second answer has no place and waits with the prompt computed
    assert {each.request_id for each in engine.waiting} == {"low-1"}
    assert refused(engine, request("high")) == ("high", "queue_full")


def test_no_request_is_evicted_for_a_newcomer_that_cannot_meet_its_own_deadline() -> None:
    engine = scheduler(queue=1)
    engine.submit(request("runs", prompt=200, max_tokens=400))
    engine.plan(0.0, MODEL)
    engine.submit(request("low", priority=-1))
    late = request("late", prompt=400, ttft_target=0.05)
    assert refused(engine, late) == ("late", "slo_unreachable")
    assert "low" in engine.requests


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(POLICIES)), st.integers(0, 2**32), st.integers(0, 6), st.integers(1, 3), st.integers(4, 12)
)
def test_in_overload_each_request_ends_once_and_no_high_priority_is_rejected_while_a_lower_one_waits(
    policy: str, seed: int, queue: int, places: int, blocks: int
) -> None:
    config = SchedulerConfig(num_blocks=blocks, max_num_seqs=places, max_model_length=60, policy=policy)
    engine = Scheduler(config, LimitController(Limits(concurrency_max=places, max_queue=queue, max_batched_tokens=32)))
    dice, answers, names, fresh = random.Random(seed), Counter[str](), list[str](), set[str]()
    for now in range(150):
        for _ in range(dice.choice([0, 0, 1, 3]) if now < 100 else 0):
            name, pooling = str(len(names)), dice.random() < 0.2
            one = Request(
                name,
                [dice.randrange(3) for _ in range(dice.randint(1, 50))],
                0 if pooling else dice.randint(1, 9),
                float(now),
                pooling=pooling,
                priority=dice.choice([0, 10]),
                tenant=dice.choice("ab"),
            )
            samples = [] if pooling else [one.another_sample(f"{name}+", SamplingParams())] * (dice.random() < 0.3)
            waited = {each.request_id: each for each in engine.waiting if each.request_id in fresh}
            before = set(engine.requests)
            rejection = engine.submit(one, samples)
            engine.check()
            group = [name, *(each.request_id for each in samples)]
            names += group
            fresh.add(name)
            if rejection is None:
                continue
            gone = one if rejection.request_id == name else waited[rejection.request_id]
            assert rejection.reason == ("queue_full" if gone is one else "displaced")
            assert all(each.priority >= gone.priority for each in waited.values())
            answers.update(group if gone is one else before - set(engine.requests))
        if engine.requests and dice.random() < 0.05:
            left = dice.choice(list(engine.requests))
            assert engine.cancel(left)
            answers[left] += 1
        plan = engine.plan(float(now))
        if plan is not None:
            fresh -= {row.request_id for row in plan.rows}
            outcomes = engine.settle(
                plan, [1] * sum(len(row.sampled_ids) for row in plan.rows if row.samples), float(now)
            )
            engine.check()
            answers.update(outcome.request_id for outcome in outcomes if outcome.finish is not None)
    while engine.requests:
        answers.update(step(engine, 1000.0))
    assert answers == Counter(names)
    assert engine.pool.held == 0 and not engine.waiting.evictable._owed and not engine.waiting.evictable._ranks


def _overload(
    policy: str, shares: tuple[int, int, int], weights: dict[str, float] | None = None
) -> tuple[Counter[str], Counter[str], float]:
    """Weighted tokens that tenants a, b and c were served and their refusals, where one request comes a step and an
    engine that serves a fifth of them has 30 places to wait in; and the bound of the counters' theorem."""
    engine = scheduler(policy, queue=30, places=4, blocks=128)
    engine.state.counters.set_weights(weights or {})
    dice, sent, got, refusals = random.Random(5), dict[str, Request](), Counter[str](), Counter[str]()
    for now in range(6000):
        while dice.random() < 0.5:
            tenant = dice.choices("abc", shares)[0]
            one = request(str(len(sent)), dice.randint(4, 60), dice.randint(4, 36), tenant=tenant)
            sent[one.request_id] = one
            if (rejection := engine.submit(one)) is not None:
                refusals[sent[rejection.request_id].tenant] += 1
        plan = engine.plan(float(now))
        if plan is None:
            continue
        for outcome in engine.settle(plan, [1] * sum(row.samples for row in plan.rows), float(now)):
            one = sent[outcome.request_id]
            got[one.tenant] += int(PROMPT_WEIGHT * one.prompt_length if outcome.first else 0.0)
            got[one.tenant] += int(OUTPUT_WEIGHT * len(outcome.token_ids))
    engine.check()
    pool = engine.config.num_blocks * engine.config.block_size
    return got, refusals, 2 * max(PROMPT_WEIGHT * 60, OUTPUT_WEIGHT * pool)


@pytest.mark.parametrize("policy", ["fair", "fcfs", "priority"])
def test_tenants_with_60_30_and_10_percent_of_an_overload_are_served_alike(policy: str) -> None:
    got, _, bound = _overload(policy, (60, 30, 10))  # five times what is served: 10 % is more than an equal share
    assert max(got.values()) - min(got.values()) <= bound
    assert min(got.values()) > 2 * bound


@pytest.mark.parametrize("policy", ["fair", "fcfs"])
def test_tenants_are_served_in_the_ratio_of_their_weights(policy: str) -> None:
    weights = {"a": 3.0, "b": 1.0, "c": 0.5}
    got, _, bound = _overload(policy, (34, 33, 33), weights)
    shares = [got[tenant] / weight for tenant, weight in weights.items()]
    assert max(shares) - min(shares) <= bound / min(weights.values())
    assert got["a"] > 2 * got["b"] > 2 * got["c"] > 0


@pytest.mark.parametrize("policy", ["fair", "fcfs"])
def test_a_tenant_below_its_share_is_not_rejected(policy: str) -> None:
    _, refusals, _ = _overload(policy, (70, 27, 3))
    assert refusals["c"] == 0 < refusals["b"] < refusals["a"]


def _operations(waiting: int) -> int:
    """Calls of one displacement with so many requests waiting."""
    engine = scheduler(queue=waiting)
    engine.submit(request("runs", max_tokens=400))
    step(engine)
    for index in range(waiting):
        engine.submit(request(str(index), tenant=str(index % 5), priority=-(index % 3)))
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    newcomer = request("high", priority=1)
    sys.setprofile(count)
    try:
        rejection = engine.submit(newcomer)
    finally:
        sys.setprofile(None)
    assert rejection is not None and rejection.reason == "displaced"
    return calls


def test_an_eviction_costs_the_same_with_ten_thousand_waiting_requests() -> None:
    assert _operations(10_000) <= 1.1 * _operations(100)

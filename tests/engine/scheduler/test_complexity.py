"""Complexity of cancelling, submitting and load shedding: instructions with 1,000 and with 10,000 waiting requests."""

import random
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.sampling_params import SamplingParams
from sluice_engine.scheduler import Scheduler, SchedulerConfig
from sluice_engine.scheduler.load_shedding.eviction import EvictionCandidates
from sluice_engine.scheduler.load_shedding.lateness import Candidate, ServiceRate, demoted
from sluice_engine.scheduler.policies.tenants import TenantCounters
from sluice_perfmodel.step_time import StepTimeModel
from tests.counting import count_calls, count_instructions

FEW, MANY = 1_000, 10_000
LINEARITHMIC = MANY / FEW * 1.34  # n log n: 10 · log 10,000 / log 1,000


def scheduler(**bounds: float) -> Scheduler:
    config = SchedulerConfig(num_blocks=256, max_model_length=512, max_num_seqs=8)
    return Scheduler(config, LimitController(Limits(concurrency_max=8, max_queue=10 * MANY, **bounds)))  # type: ignore[arg-type]


def request(name: str, **fields: object) -> Request:
    return Request(name, [7] * 10, 4, 0.0, **fields)  # type: ignore[arg-type]


def growth(cost: Callable[[int], int]) -> float:
    """How many times as much 10,000 cost as 1,000 do."""
    return cost(MANY) / cost(FEW)


def shuffled(count: int) -> list[int]:
    numbers = list(range(count))
    random.Random(count).shuffle(numbers)
    return numbers


def test_cancelling_a_sample_costs_the_same_with_ten_thousand_sample_groups() -> None:
    def cost(groups: int) -> int:
        engine = scheduler()
        for index in range(groups):
            first = request(str(index))
            engine.submit(first, [first.another_sample(f"{index}+{sample}", SamplingParams()) for sample in range(2)])
        chosen = [f"{index}{which}" for index in shuffled(groups)[:30] for which in ("+1", "", "+0")]
        instructions = count_instructions(lambda: [engine.cancel(name) for name in chosen])
        engine.check()
        assert len(engine.state.sample_groups) == 2 * (groups - 30)
        return instructions

    assert growth(cost) <= 1.1


@pytest.mark.parametrize(("policy", "tenants"), [("fcfs", MANY), ("edf", 1), ("fair", MANY)])
def test_when_all_of_the_queue_is_cancelled_each_cancel_costs_the_same(policy: str, tenants: int) -> None:
    def cost(waiting: int) -> int:
        config = SchedulerConfig(num_blocks=256, max_model_length=512, max_num_seqs=8, policy=policy)
        engine = Scheduler(config, LimitController(Limits(concurrency_max=8, max_queue=10 * MANY)))
        for index in range(waiting):
            engine.submit(request(str(index), tenant=str(index % tenants), priority=index % 3))
        names = [str(index) for index in shuffled(waiting)]
        instructions = count_instructions(lambda: [engine.cancel(name) for name in names])
        assert not engine.requests
        return instructions

    assert growth(cost) <= LINEARITHMIC


def _tenants_as_they_come_and_go(seed: int) -> Iterator[tuple[TenantCounters, str]]:
    """Counters after each change, and the tenant that it was about."""
    dice, counters, waiting = random.Random(seed), TenantCounters(), list[str]()
    for _ in range(30_000):
        what, tenant = dice.random(), f"tenant {dice.randrange(6000)}"
        if what < 0.45:
            counters.arrive(tenant)
            waiting.append(tenant)
        elif what < 0.9 and waiting:
            tenant = waiting.pop(dice.randrange(len(waiting)))
            counters.depart(tenant)
        else:
            counters.charge(tenant, float(dice.randrange(100)))
        yield counters, tenant


def test_the_counters_that_are_dropped_are_the_least_of_those_of_idle_tenants() -> None:
    before, dropped = dict[str, float](), 0
    for counters, tenant in _tenants_as_they_come_and_go(1):
        if len(counters._served) < len(before):
            gone = before.keys() - counters._served.keys()
            idle = counters._served.keys() - counters._in_heap
            assert max((before[name], name) for name in gone) < min((counters.served(name), name) for name in idle)
            dropped += len(gone)
            for name in gone:
                del before[name]
        if tenant in counters._served:
            before[tenant] = counters.served(tenant)
    assert dropped > 100


@pytest.mark.parametrize("priorities", [1, 3])
def test_choosing_the_demoted_requests_of_a_whole_queue_is_n_log_n_however_many_tenants_there_are(
    priorities: int,
) -> None:
    """In calls: the tree's own loops are log n long, and a test that follows them would take a minute."""
    rate = ServiceRate(running_work=0.0, prefill_share=0.9, free_places=50, place_interval=0.0)

    def cost(waiting: int) -> int:
        dice = random.Random(waiting)
        line = [
            Candidate(
                dice.uniform(1.0, 2.0) / waiting, 0.3 + index / waiting, index % priorities, float(index * 7 % 997)
            )
            for index in range(waiting)
        ]
        assert len(demoted(line, rate)) > waiting / 5
        return count_calls(lambda: demoted(line, rate))

    assert growth(cost) <= LINEARITHMIC


MODEL = StepTimeModel(base=0.01, prefill_token=1e-7, sequence=1e-4, kv_token=1e-9, steps=1000)


def _queue(waiting: int, ttft: float) -> Scheduler:
    """An engine with a usable step-time model, one running request, and so many waiting ones, each with a deadline."""
    engine = scheduler(ttft_target=1e9)
    engine.submit(request("runs"))
    plan = engine.plan(0.0, MODEL)
    assert plan is not None
    engine.settle(plan, [1], 0.01)
    for index in range(waiting):
        engine.submit(request(str(index)))
    engine.state.limits.patch({"ttft_target": ttft}, None, 0.0)
    engine.submit(request("reads the queue once"))
    return engine


def test_a_submit_to_a_queue_in_which_all_are_in_time_grows_with_its_square_root() -> None:
    def cost(waiting: int) -> int:
        engine = _queue(waiting, ttft=60.0)
        instructions = count_instructions(lambda: [engine.submit(request(f"new {index}")) for index in range(20)])
        assert engine.waiting.longest_late() is None
        assert len(engine.waiting) == waiting + 21
        engine.check()
        return instructions

    assert growth(cost) <= 1.2 * (MANY / FEW) ** 0.5


@pytest.mark.parametrize("spread", [1, 3])
def test_an_eviction_costs_the_same_with_ten_thousand_tenants_in_the_queue(spread: int) -> None:
    """Served some tokens each time, which the order of the tenants follows."""

    def cost(waiting: int) -> int:
        engine = scheduler()
        for index in range(waiting):
            engine.submit(request(str(index), tenant=str(index), priority=index % spread))
        engine.state.limits.patch({"max_queue": 0}, None, 0.0)

        def displace(index: int) -> None:
            engine.state.counters.charge(str(index * 7), 50.0)
            rejection = engine.submit(request(f"new {index}", tenant=f"new {index}", priority=9))
            assert rejection is not None and rejection.reason == "displaced"

        displace(0)  # the first one puts all tenants in order

        def forty() -> None:
            for index in range(1, 41):
                displace(index)

        return count_instructions(forty)

    assert growth(cost) <= 1.34  # log 10,000 / log 1,000


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 5), st.integers(-1, 1), st.integers(0, 4))))
def test_the_evicted_request_is_the_latest_of_the_tenant_with_the_highest_usage(
    changes: list[tuple[str, int, int, int]],
) -> None:
    counters = TenantCounters()
    candidates = EvictionCandidates(counters)
    inside = dict[str, tuple[int, str, float]]()  # in the order in which they came
    for number, (tenant, what, priority, weight) in enumerate(changes):
        name = str(number)
        if what <= 2:
            counters.arrive(tenant)
            candidates.add(name, (priority, True), tenant, float(weight))
            inside[name] = priority, tenant, float(weight)
        elif what == 3:
            counters.charge(tenant, float(weight))
        elif inside and what == 4:
            gone = list(inside)[weight % len(inside)]
            left, owner, _ = inside.pop(gone)
            counters.depart(owner)
            candidates.discard(gone, (left, True), owner)
        if not inside:
            assert candidates.for_newcomer((100, True), "new", 0.0) is None
            continue
        lowest = min(priority for priority, _, _ in inside.values())
        had = {owner: counters.served(owner) for _, owner, _ in inside.values()}
        for _, owner, waits in inside.values():
            had[owner] += waits
        leaves = candidates.for_newcomer((100, True), "new", 0.0)
        assert leaves is not None
        owner = inside[leaves][1]
        assert had[owner] == max(had[other] for priority, other, _ in inside.values() if priority == lowest)
        assert leaves == [one for one, (p, other, _) in inside.items() if (p, other) == (lowest, owner)][-1]

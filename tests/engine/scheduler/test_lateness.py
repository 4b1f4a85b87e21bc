"""Which requests are demoted in a queue that is too long for its deadlines, and the wait that a rejection predicts."""

import math
import random
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.limits import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler import Scheduler, SchedulerConfig
from sluice_engine.scheduler.load_shedding.lateness import Candidate, ServiceRate, demoted, excess
from sluice_engine.scheduler.load_shedding.rejection import wait_behind_all
from sluice_engine.scheduler.policies.tenants import unavoidable_gap
from sluice_perfmodel.step_time import StepTimeModel
from sluice_sim.cluster.request import RequestRecord
from sluice_sim.engine.exact import SimEngine
from sluice_sim.engine.offered_request import OfferedRequest
from sluice_sim.engine.step_times import Profiled
from sluice_sim.traces import Arrival
from tests.counting import count_calls

MODEL = StepTimeModel(base=0.01, prefill_token=1e-4, sequence=2e-4, kv_token=1e-7, steps=1000)
RATE = ServiceRate(running_work=0.0, prefill_share=1.0, free_places=100, place_interval=0.0)
CANDIDATES = st.builds(
    Candidate,
    work=st.floats(0.01, 2.0),
    deadline=st.one_of(st.just(2.0), st.floats(-1.0, 5.0), st.just(math.inf)),
    priority=st.sampled_from([0, 0, 10]),
    excess_usage=st.sampled_from([0.0, 100.0]),
)
RATES = st.builds(
    ServiceRate,
    running_work=st.floats(0.0, 1.0),
    prefill_share=st.floats(0.2, 1.0),
    free_places=st.integers(0, 5),
    place_interval=st.floats(0.0, 0.3),
    step=st.floats(0.0, 0.1),
)


@given(st.lists(CANDIDATES, max_size=25), RATES)
def test_kept_requests_are_predicted_to_be_in_time_and_requests_that_have_run_are_kept(
    line: list[Candidate], rate: ServiceRate
) -> None:
    gone = demoted(line, rate)
    work = 0.0
    for ahead, one in enumerate(each for index, each in enumerate(line) if index not in gone):
        work += one.work
        assert one.deadline >= rate.first_token(ahead, work, one.work) - 1e-9
    assert not any(line[index].deadline == math.inf for index in gone)


def _by_definition(line: list[Candidate], rate: ServiceRate) -> set[int]:
    """The rule in as few words as it takes, O(n² log n)."""
    gone, kept, work = set[int](), list[int](), 0.0
    for index, one in enumerate(line):
        kept.append(index)
        work += one.work
        if rate.first_token(len(kept) - 1, work, one.work) > one.deadline:
            for leaver in _leavers_by_definition(line, kept, work, rate):
                kept.remove(leaver)
                gone.add(leaver)
                work -= line[leaver].work
    return gone


def _leavers_by_definition(line: list[Candidate], kept: list[int], work: float, rate: ServiceRate) -> list[int]:
    one = line[kept[-1]]

    def in_time(others: list[int]) -> bool:
        less = sum(line[index].work for index in others)
        return rate.first_token(len(kept) - 1 - len(others), work - less, one.work) <= one.deadline

    def worth(index: int) -> tuple[int, float, float]:
        return line[index].priority, -line[index].excess_usage, -line[index].work

    free = [index for index in kept[:-1] if line[index].deadline < math.inf]
    lower = sorted((index for index in free if line[index].priority < one.priority), key=worth)
    if in_time(lower) and lower:
        return next(lower[:count] for count in range(1, len(lower) + 1) if in_time(lower[:count]))
    alike = [index for index in free if line[index].priority == one.priority and in_time([index])]
    return [min((kept[-1], *alike), key=worth)]


TIES = st.builds(
    Candidate,
    work=st.sampled_from([0.25, 0.5, 1.0]),
    deadline=st.sampled_from([1.5, 2.0, 3.0, math.inf]),
    priority=st.sampled_from([-5, 0, 0, 10]),
    excess_usage=st.sampled_from([0.0, 100.0]),
)


@given(st.one_of(st.lists(CANDIDATES, max_size=25), st.lists(TIES, max_size=25)), st.one_of(RATES, st.just(RATE)))
def test_the_demoted_requests_equal_those_of_the_rules_definition(line: list[Candidate], rate: ServiceRate) -> None:
    assert demoted(line, rate) == _by_definition(line, rate)


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=9), st.floats(0.2, 3.0))
def test_of_equal_requests_with_one_deadline_as_many_are_kept_as_any_choice_keeps(
    works: list[float], deadline: float
) -> None:
    kept = len(works) - len(demoted([Candidate(work, deadline) for work in works], RATE))
    most, room = 0, deadline
    for work in sorted(works):
        room -= work
        most += room >= 0.0
    assert kept == most


def test_the_lowest_priority_is_demoted_first_then_the_tenant_with_more_usage_then_the_longest_prompt() -> None:
    low, high = Candidate(0.5, 2.0), Candidate(1.2, 2.0, priority=10)
    assert demoted([high, low, low], RATE) == {2} or demoted([high, low, low], RATE) == {1}
    greedy, modest = Candidate(1.0, 2.0, excess_usage=9.0), Candidate(1.5, 2.0)
    assert demoted([greedy, modest], RATE) == {0}
    assert demoted([Candidate(0.3, 2.0), Candidate(1.5, 2.0), Candidate(0.5, 2.0)], RATE) == {1}


def test_several_requests_are_not_demoted_for_one_of_their_own_priority() -> None:
    assert demoted([Candidate(0.5, 60.0)] * 6 + [Candidate(0.1, 0.4)], RATE) == {6}


def _engine() -> SimEngine:
    config = SchedulerConfig(num_blocks=20_000, max_num_seqs=64, max_model_length=8192)
    bounds = Limits(concurrency_min=64, concurrency_max=64, max_queue=40, itl_target=0.05, ttft_target=1.0)
    return SimEngine(Profiled(MODEL), config, bounds, 0.0)


def _flooded(seconds: float, seed: int) -> tuple[SimEngine, list[RequestRecord]]:
    """Twice what it serves, for so long."""
    engine, dice, at, records = _engine(), random.Random(seed), 0.0, []
    while at < seconds:
        at += dice.expovariate(24.0)
        one = Arrival(at, dice.choice([100, 400, 1600]), dice.randint(5, 120))
        records.append(RequestRecord(at, one.prompt, one.output))
        engine.run_until(at)
        refused = engine.submit(OfferedRequest(len(records), one, records[-1]))
        if refused is not None:
            refused.record.refused = True
    return engine, records


def test_in_overload_few_first_tokens_are_late_and_each_request_ends_once() -> None:
    engine, records = _flooded(20.0, seed=3)
    engine.run_until(100.0)
    assert all(one.refused == (one.ended_at is None) for one in records)
    begun = [one for one in records if one.ttft is not None and one.arrived_at > 5.0 and one.first_at < 20.0]  # type: ignore[operator]
    late = sum(one.ttft > 1.0 for one in begun)  # type: ignore[operator]
    assert late < 0.05 * len(begun)
    assert sum(one.good for one in records) > 0.4 * len(records)


def test_the_wait_in_a_rejection_is_what_the_last_request_then_waits() -> None:
    """In virtual time, over floods that end: within a quarter."""
    for seed in range(2):
        engine, records = _flooded(10.0, seed)
        wait = wait_behind_all(engine.scheduler.state)
        waiting = [one for one in records if not one.refused and one.first_at is None]
        engine.run_until(40.0)
        begins = max(one.first_at for one in waiting if one.first_at is not None) - 10.0
        assert len(waiting) > 20 and abs(wait - begins) <= 0.25 * begins


def test_without_deadlines_submitting_the_thousandth_request_costs_as_much_as_the_tenth() -> None:
    """As offline, where all prompts come at once: a forecast of the whole queue for each would take hours of thousands."""
    bounds = Limits(concurrency_max=4, max_queue=10**6, ttft_target=1e9)
    scheduler = Scheduler(SchedulerConfig(num_blocks=4096, max_num_seqs=4), LimitController(bounds))
    scheduler.submit(Request("first", [7] * 10, 10, 0.0))
    plan = scheduler.plan(0.0, MODEL)
    assert plan is not None
    scheduler.settle(plan, [7], 0.1)
    costs = [
        count_calls(partial(scheduler.submit, Request(str(index), [index] * 10, 10, 0.2))) for index in range(1000)
    ]
    assert max(costs[-10:]) <= 2 * max(costs[:10])


@given(st.dictionaries(st.sampled_from("abc"), st.floats(0.0, 1e7)), st.floats(0.0, 1e6))
def test_tenants_are_equal_until_ones_usage_exceeds_the_allowed_gap(had: dict[str, float], allowed: float) -> None:
    ahead = excess(had, allowed)
    for tenant, standing in had.items():
        assert ahead[tenant] == max(0.0, standing - min(had.values()) - allowed)


def test_within_the_allowed_gap_the_longest_prompt_is_demoted_and_beyond_it_the_tenant_with_more_usage() -> None:
    for more, leaves in ((0.9, "long"), (1.1, "short")):
        bounds = Limits(concurrency_min=8, concurrency_max=8, ttft_target=1.0, itl_target=0.05)
        scheduler = Scheduler(SchedulerConfig(num_blocks=4096, max_num_seqs=8), LimitController(bounds))
        scheduler.submit(Request("runs", [1] * 10, 1000, 0.0))
        plan = scheduler.plan(0.0, MODEL)
        assert plan is not None
        scheduler.settle(plan, [7], 0.01)
        scheduler.submit(Request("short", [2] * 3000, 10, 0.01, tenant="had more"))
        scheduler.submit(Request("long", [3] * 4000, 10, 0.01, tenant="had less"))
        scheduler.state.counters.charge("had more", more * unavoidable_gap(8192, 4096 * 16) + 2000)
        scheduler.submit(Request("newcomer", [4] * 2000, 10, 0.01, tenant="had less"))
        assert scheduler.waiting.longest_late() is scheduler.requests[leaves]

"""The queue's order and bounds as properties of any sequence of arrivals, starts and departures."""

from collections import defaultdict
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_gateway.queueing import FleetQueue, QueueLimits, Waiting

WIDE = QueueLimits(requests=1000, bytes=10**9, wait_seconds=inf, aging_seconds=inf)
SMALL = QueueLimits(requests=5, bytes=100, wait_seconds=inf, aging_seconds=inf)

items_drawn = st.fixed_dictionaries(
    {
        "tenant": st.sampled_from("abc"),
        "priority": st.integers(-2, 2),
        "deadline": st.sampled_from([inf, inf, 5.0, 7.0, 9.0]),
        "size": st.integers(0, 60),
        "work": st.floats(1.0, 100.0),
    }
)
calls_drawn = st.lists(st.one_of(items_drawn, st.just("pop"), st.integers(0, 30)), max_size=60)


def waiting(number: int, drawn: dict[str, Any], now: float = 0.0) -> Waiting:
    return Waiting(number=number, arrived_at=now, **drawn)


def all_of(queue: FleetQueue, now: float = 0.0) -> list[Waiting]:
    found = list[Waiting]()
    while (item := queue.pop(now)) is not None:
        found.append(item)
    return found


@given(st.lists(items_drawn, max_size=40))
def test_higher_priorities_start_first_and_then_earlier_deadlines(drawn: list[dict[str, Any]]) -> None:
    queue = FleetQueue(WIDE)
    for number, one in enumerate(drawn):
        assert queue.offer(waiting(number, one), 0.0) == {}
    started = all_of(queue)
    assert len(started) == len(drawn)
    assert [(-one.priority, one.deadline) for one in started] == sorted(
        (-one.priority, one.deadline) for one in started
    )


@given(st.lists(items_drawn, max_size=40))
def test_requests_of_one_tenant_that_are_equal_otherwise_start_in_their_order(drawn: list[dict[str, Any]]) -> None:
    queue = FleetQueue(WIDE)
    for number, one in enumerate(drawn):
        queue.offer(waiting(number, one), 0.0)
    by_class = defaultdict[tuple[object, ...], list[int]](list)
    for item in all_of(queue):
        by_class[item.tenant, item.priority, item.deadline].append(item.number)
    assert all(numbers == sorted(numbers) for numbers in by_class.values())


@given(calls_drawn)
def test_the_bounds_hold_and_no_request_is_lost_or_told_twice(calls: list[Any]) -> None:
    queue, now = FleetQueue(SMALL), 0.0
    inside = dict[int, Waiting]()
    for number, call in enumerate(calls):
        now += 1.0
        if isinstance(call, dict):
            inside[number] = waiting(number, call, now)
            for rejected in queue.offer(inside[number], now):
                del inside[rejected]
        elif call == "pop":
            item = queue.pop(now)
            assert (item is None) == (not inside)
            if item is not None:
                assert item.priority == max(one.priority for one in inside.values())
                del inside[item.number]
        else:
            queue.leave(call)
            inside.pop(call, None)
        assert len(queue) == len(inside) <= SMALL.requests
        assert queue.bytes == sum(one.size for one in inside.values()) <= SMALL.bytes
        assert sum(queue.by_priority.values()) == len(inside)


@given(calls_drawn)
def test_only_lower_priorities_are_displaced_the_lowest_and_newest_first(calls: list[Any]) -> None:
    queue = FleetQueue(SMALL)
    inside = dict[int, Waiting]()
    for number, call in enumerate(call for call in calls if isinstance(call, dict)):
        item = waiting(number, call)
        found = queue.offer(item, 0.0)
        inside[number] = item
        gone = [inside.pop(rejected) for rejected in found]
        if item not in gone:
            assert all(one.priority < item.priority for one in gone)
            ranks = [(one.priority, -one.number) for one in gone]
            kept = [(one.priority, -one.number) for one in inside.values() if one is not item]
            assert not ranks or not kept or max(ranks) < min(kept)
            assert {why.reason for why in found.values()} <= {"displaced"}


@given(
    st.dictionaries(st.sampled_from("abc"), st.sampled_from([0.5, 1.0, 2.0, 5.0]), min_size=2),
    st.lists(st.floats(1.0, 50.0), min_size=30, max_size=30),
    st.integers(0, 2**30),
)
def test_service_follows_the_weights_within_the_work_of_one_request(
    weights: dict[str, float], works: list[float], seed: int
) -> None:
    queue, number = FleetQueue(WIDE), 0
    for place in range(len(works)):
        for tenant, weight in weights.items():
            queue.offer(Waiting(number, tenant, weight, work=works[(place * (ord(tenant) + seed)) % 30]), 0.0)
            number += 1
    served, left = dict.fromkeys(weights, 0.0), dict.fromkeys(weights, len(works))
    while all(left.values()):
        item = queue.pop(0.0)
        assert item is not None
        served[item.tenant] += item.work / item.weight
        left[item.tenant] -= 1
        assert max(served.values()) - min(served.values()) <= max(works) / min(weights.values()) + 1e-6


@given(st.integers(1, 200), st.integers(1, 5))
def test_a_tenant_that_returns_has_saved_up_nothing(alone: int, work: int) -> None:
    queue = FleetQueue(WIDE)
    for number in range(alone + 10):
        queue.offer(Waiting(number, "busy", work=work), 0.0)
    for _ in range(alone):
        queue.pop(0.0)
    for number in range(1000, 1010):
        queue.offer(Waiting(number, "back", work=work), 0.0)
    order = [one.tenant for one in all_of(queue)]
    assert abs(order[:10].count("busy") - 5) <= 1


def test_a_request_without_a_deadline_starts_although_ones_with_deadlines_keep_coming() -> None:
    queue = FleetQueue(QueueLimits(wait_seconds=inf, aging_seconds=10.0))
    queue.offer(Waiting(0, arrived_at=0.0), 0.0)
    started: list[int] = []
    for second in range(1, 12):
        queue.offer(Waiting(second, deadline=second + 1.0, arrived_at=float(second)), float(second))
        item = queue.pop(float(second))
        assert item is not None
        started.append(item.number)
    assert started.index(0) == 9, "in second 10"


def test_the_predicted_wait_bounds_the_queue_and_is_what_a_rejected_request_is_told() -> None:
    queue, now = FleetQueue(QueueLimits(wait_seconds=10.0)), 0.0
    for number in range(20):
        assert queue.offer(Waiting(number), now) == {}  # nothing is known of the rate yet
    for _ in range(10):  # one start each second
        now += 1.0
        queue.pop(now)
    rejected = queue.offer(Waiting(100), now)
    assert (rejected[100].reason, rejected[100].retry_after) == ("wait_too_long", 1.0)
    assert queue.predicted_wait(0, now) == pytest.approx(11.0)
    assert queue.offer(Waiting(101, priority=1), now) == {}  # none of its priority is ahead of it
    assert queue.predicted_wait(0, now + 5.0) == pytest.approx(12.0 + 4.0)  # no start for five seconds


@given(st.permutations(range(8)), st.sampled_from([0.0, inf]))
def test_a_request_that_comes_back_keeps_the_place_of_its_arrival(order: list[int], aging: float) -> None:
    queue = FleetQueue(QueueLimits(wait_seconds=inf, aging_seconds=aging))
    for number in order:
        queue.offer(Waiting(number, arrived_at=float(number)), 10.0)
    assert [one.number for one in all_of(queue, 10.0)] == list(range(8))


def test_a_request_that_comes_back_to_a_full_queue_takes_the_place_of_the_newest_one() -> None:
    queue = FleetQueue(SMALL)
    for number in range(1, 6):
        queue.offer(Waiting(number, arrived_at=float(number)), 10.0)
    assert queue.offer(Waiting(0, arrived_at=0.5), 10.0)[5].reason == "displaced"
    assert queue.offer(Waiting(6, arrived_at=10.0), 10.0)[6].reason == "queue_full"
    assert [one.number for one in all_of(queue)] == [0, 1, 2, 3, 4]


def test_the_predicted_wait_of_a_request_that_comes_back_is_that_of_those_before_it() -> None:
    queue, now = FleetQueue(QueueLimits(wait_seconds=2.5)), 0.0
    for number in range(8):
        queue.offer(Waiting(number, arrived_at=float(number)), now)
    for _ in range(4):  # one start each second
        now += 1.0
        queue.pop(now)
    assert queue.offer(Waiting(8, arrived_at=8.0), now)[8].reason == "wait_too_long"
    assert queue.offer(Waiting(0, arrived_at=0.0), now) == {}


@given(st.lists(items_drawn, max_size=30), st.sets(st.integers(0, 29)))
def test_requests_that_are_passed_over_change_nothing_for_the_others(
    drawn: list[dict[str, Any]], passed_over: set[int]
) -> None:
    queue, without = FleetQueue(WIDE), FleetQueue(WIDE)
    for number, one in enumerate(drawn):
        queue.offer(waiting(number, one), 0.0)
        if number not in passed_over:
            without.offer(waiting(number, one), 0.0)
    while (item := queue.peek(0.0, passed_over)) is not None:
        assert item.number not in passed_over
        assert item.priority == max(level for level in without.by_priority)
        queue.start(item, 0.0)
        without.leave(item.number)
    assert not without
    assert {one.number for one in all_of(queue)} == passed_over & set(range(len(drawn)))

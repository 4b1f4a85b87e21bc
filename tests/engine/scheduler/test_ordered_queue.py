"""The requests that can still be in time, in order, and whether one more makes any of them late."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_engine.request import Request
from sluice_engine.scheduler.load_shedding.lateness import Candidate, ServiceRate, demoted
from sluice_engine.scheduler.load_shedding.ordered_queue import Entry, OrderedQueue

NOW, TARGET = 10.0, 2.0
RATES = st.builds(
    ServiceRate,
    running_work=st.sampled_from([0.0, 0.25]),
    prefill_share=st.sampled_from([0.5, 1.0]),
    free_places=st.integers(0, 5),
    place_interval=st.sampled_from([0.0, 0.01]),
    step=st.sampled_from([0.0, 0.125]),
)


def entry(
    serial: int, number: float = 0.0, work: float = 0.0, arrived: float = NOW, target: float | None = None
) -> Entry:
    request = Request(str(serial), [7], 4, arrived, ttft_target=target)
    return Entry(False, number, 0.0, serial, serial, True, work, request)


ENTRIES = st.lists(
    st.tuples(
        st.sampled_from([0.0, 1.0, 2.0]),
        st.sampled_from([0.0, 1 / 64, 1 / 16]),
        st.sampled_from([NOW - 1.5, NOW - 0.5, NOW]),
        st.sampled_from([None, None, 1.0, 4.0]),
    ),
    max_size=120,
).map(lambda fields: [entry(serial, *each) for serial, each in enumerate(fields)])


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10**6))), st.integers(0, 3))
def test_an_ordered_queue_is_a_sorted_list(changes: list[tuple[bool, int]], start: int) -> None:
    line, model = OrderedQueue(), list[Entry]()
    for serial in range(start * 150):
        model.append(entry(serial, serial * 7919 % 101))
        line.add(model[-1])
    for serial, (add, number) in enumerate(changes, 1000):
        if add or not model:
            model.append(entry(serial, number % 101))
            line.add(model[-1])
        else:
            line.remove(model.pop(number % len(model)))
        assert len(line) == len(model)
    assert list(line) == sorted(model)


def test_an_entry_that_is_not_queued_cannot_be_removed() -> None:
    line = OrderedQueue()
    with pytest.raises(KeyError):
        line.remove(entry(0))
    line.add(entry(1))
    with pytest.raises(KeyError):
        line.remove(entry(2))


def test_blocks_hold_about_the_square_root_of_the_queue_while_it_grows_and_shrinks() -> None:
    line, entries = OrderedQueue(), [entry(serial, serial * 7919 % 10_007) for serial in range(10_000)]
    for each in entries:
        line.add(each)
    assert 50 <= len(line._blocks) <= 250
    for each in entries[:9_900]:
        line.remove(each)
    assert len(line._blocks) <= 25
    assert list(line) == sorted(entries[9_900:])


@given(ENTRIES, RATES, st.sampled_from([0.0, 1.0, 3.0]), st.sampled_from([1 / 64, 1 / 4]))
def test_a_wait_is_returned_only_where_the_rule_demotes_none_and_equals_the_sum_of_the_work_before(
    entries: list[Entry], rate: ServiceRate, number: float, work: float
) -> None:
    line, newcomer = OrderedQueue(), entry(10**6, number, work)
    for each in entries:
        line.add(each)
    wait = line.wait_if_all_in_time(newcomer, rate, NOW, TARGET)
    together = line.with_newcomer(newcomer)
    assert together == sorted([*entries, newcomer])
    candidates = [Candidate(each.work, each.deadline(TARGET) - NOW) for each in together]
    place = together.index(newcomer)
    if wait is None:
        tight = [each._replace(deadline=each.deadline - 1e-6) for each in candidates]
        assert demoted(tight, rate)
    else:
        assert not demoted(candidates, rate)
        assert wait == pytest.approx(rate.first_token(place, sum(each.work for each in together[: place + 1]), work))


def test_a_request_that_has_run_has_no_deadline() -> None:
    waits = entry(0, work=9.0, arrived=0.0)
    waits.request.first_scheduled_at = 1.0
    assert waits.deadline(TARGET) == math.inf
    line = OrderedQueue()
    line.add(waits)
    rate = ServiceRate(running_work=0.0, prefill_share=1.0, free_places=10, place_interval=0.0)
    assert line.wait_if_all_in_time(entry(1, number=-1.0, work=0.5), rate, NOW, TARGET) == 0.5

"""The notice of a starting replica: its time runs down, it expires, and it spreads the retries of rejected requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_engine.server.capacity_eta import CapacityEta


class Clock:
    """A clock that the test advances."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_nobody_has_said_anything_yet() -> None:
    eta = CapacityEta(Clock())
    assert (eta.seconds_left, eta.retry_after(3.0, "a")) == (None, 3.0)


@pytest.mark.parametrize(
    ("told", "ttl", "later", "left"),
    [(40.0, 30.0, 10.0, 30.0), (40.0, 30.0, 30.0, None), (5.0, 30.0, 5.0, None), (0.0, 30.0, 0.0, None)],
)
def test_it_runs_down_and_is_believed_for_its_time_alone(
    told: float, ttl: float, later: float, left: float | None
) -> None:
    clock = Clock()
    eta = CapacityEta(clock)
    eta.set(told, ttl)
    clock.now += later
    assert eta.seconds_left == left


def test_the_newest_word_holds() -> None:
    eta = CapacityEta(Clock())
    eta.set(40.0, 30.0)
    eta.set(12.0, 30.0)
    assert eta.seconds_left == 12.0


def test_nothing_is_on_its_way_any_more_once_that_is_said() -> None:
    eta = CapacityEta(Clock())
    eta.set(40.0, 30.0)
    eta.set(0.0, 30.0)
    assert (eta.seconds_left, eta.retry_after(3.0, "a")) == (None, 3.0)


@given(st.floats(0.001, 1e4), st.floats(0.0, 1e4), st.text(max_size=40))
def test_nobody_is_sent_back_before_the_replica_serves_nor_later_than_a_queue_takes_then(
    told: float, own: float, name: str
) -> None:
    eta = CapacityEta(Clock())
    eta.set(told, 30.0)
    left = eta.seconds_left
    assert left is not None and left <= eta.retry_after(own, name) <= left + own


def test_those_who_were_refused_come_back_one_after_another() -> None:
    clock = Clock()
    eta = CapacityEta(clock)
    eta.set(40.0, 30.0)
    back = []
    for number in range(100):
        clock.now += 0.1
        back.append(clock.now + eta.retry_after(10.0, f"request-{number}"))
    seconds = [sum(1 for at in back if begun <= at - 1040.0 < begun + 1.0) for begun in range(10)]
    assert sum(seconds) == 100 and max(seconds) < 30

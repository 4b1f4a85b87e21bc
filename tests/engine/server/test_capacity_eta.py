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


def test_without_a_notice_the_engines_own_estimate_applies() -> None:
    eta = CapacityEta(Clock())
    assert (eta.seconds_left, eta.retry_after(3.0, "a")) == (None, 3.0)


@pytest.mark.parametrize(
    ("told", "ttl", "later", "left"),
    [(40.0, 30.0, 10.0, 30.0), (40.0, 30.0, 30.0, None), (5.0, 30.0, 5.0, None), (0.0, 30.0, 0.0, None)],
)
def test_a_notice_counts_down_and_expires_with_its_ttl(
    told: float, ttl: float, later: float, left: float | None
) -> None:
    clock = Clock()
    eta = CapacityEta(clock)
    eta.set(told, ttl)
    clock.now += later
    assert eta.seconds_left == left


def test_the_newest_notice_applies() -> None:
    eta = CapacityEta(Clock())
    eta.set(40.0, 30.0)
    eta.set(12.0, 30.0)
    assert eta.seconds_left == 12.0


def test_a_notice_of_zero_seconds_clears_the_previous_one() -> None:
    eta = CapacityEta(Clock())
    eta.set(40.0, 30.0)
    eta.set(0.0, 30.0)
    assert (eta.seconds_left, eta.retry_after(3.0, "a")) == (None, 3.0)


@given(st.floats(0.001, 1e4), st.floats(0.0, 1e4), st.text(max_size=40))
def test_retry_after_lies_between_the_eta_and_the_eta_plus_the_queue_delay(told: float, own: float, name: str) -> None:
    eta = CapacityEta(Clock())
    eta.set(told, 30.0)
    left = eta.seconds_left
    assert left is not None and left <= eta.retry_after(own, name) <= left + own


def test_retries_of_rejected_requests_are_spread_over_time() -> None:
    clock = Clock()
    eta = CapacityEta(clock)
    eta.set(40.0, 30.0)
    back = []
    for number in range(100):
        clock.now += 0.1
        back.append(clock.now + eta.retry_after(10.0, f"request-{number}"))
    seconds = [sum(1 for at in back if begun <= at - 1040.0 < begun + 1.0) for begun in range(10)]
    assert sum(seconds) == 100 and max(seconds) < 30

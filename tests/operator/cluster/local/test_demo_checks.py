"""The demo's checks read what happened: they pass on a story that happened and fail on one that did not."""

from e2e.demo.checks import Course, Dial, course, dial_of, fell_and_rose, is_grown, queue_follows, stayed_at_one
from e2e.demo.fleet import Seen


def seen(at: float, *pods: tuple[str, str, int | None], desired: int = 1) -> Seen:
    lines = [{"name": name, "phase": phase, "limit": limit, "queue": 40} for name, phase, limit in pods]
    return Seen(at, {"replicas": len(pods), "ready": 1, "desired": desired, "pods": lines})


def test_a_dial_is_read_from_the_ready_lines_of_one_pod() -> None:
    states = [
        seen(0, ("a", "loading", None)),
        seen(1, ("a", "ready", 32)),
        seen(2, ("a", "ready", 9), ("b", "ready", 32)),
    ]
    assert dial_of(states, "a", "limit").points == ((1, 32), (2, 9))


def ran(before: tuple[int, ...], tight: tuple[int, ...], after: tuple[int, ...]) -> Course | None:
    """The course of a dial with these values before the load, until the second replica was ready, and after that."""
    points = [*((at, value) for at, value in enumerate(before)), *((11 + at, value) for at, value in enumerate(tight))]
    return course(Dial(tuple(points)), 0, 10, 20, Dial(tuple((20 + at, value) for at, value in enumerate(after))))


def test_a_limit_that_falls_and_rises_passes() -> None:
    limit = ran((15, 16), (15, 10), (12, 14, 15))
    assert limit == Course(before=15.5, lowest=10, after=14)
    assert all(check.passed for check in fell_and_rose(limit))


def test_a_limit_that_stays_or_never_recovers_fails() -> None:
    steady = ran((15,), (15,), (15, 15))
    assert [check.passed for check in fell_and_rose(steady)] == [False, False]
    falling = ran((15,), (12,), (11, 10, 11))
    assert [check.passed for check in fell_and_rose(falling)] == [True, False]
    assert ran((15,), (12,), ()) is None


def bounded(*pairs: tuple[int | None, int | None]) -> Seen:
    return Seen(0, {"pods": [{"phase": "ready", "limit": limit, "queue": queue} for limit, queue in pairs]})


def test_a_queue_bound_is_compared_at_the_lowest_and_the_highest_measured_limit() -> None:
    found = queue_follows(
        [bounded((16, 101), (32, 1024)), bounded((13, 94), (7, 72)), bounded((16, 94), (None, None))], 32
    )
    assert (found.passed, found.numbers) == (True, "queue 72 at limit 7; queue 97.5 at limit 16")
    assert not queue_follows([bounded((16, 94), (13, 94))], 32).passed
    assert not queue_follows([bounded((16, 94), (16, 99))], 32).passed
    assert not queue_follows([bounded((32, 1024))], 32).passed


def test_a_scale_up_lasts_until_every_desired_replica_is_ready() -> None:
    assert is_grown(seen(9, ("a", "ready", 16)).line)
    assert not is_grown(seen(9, ("a", "ready", 9), ("c", "loading", None)).line)
    assert not is_grown(seen(9, ("a", "ready", 9), desired=2).line)


def test_a_second_replica_under_half_a_load_fails() -> None:
    assert stayed_at_one([seen(0, ("a", "ready", 9))]).passed
    assert not stayed_at_one([seen(0, ("a", "ready", 9), desired=2)]).passed
    assert not stayed_at_one([]).passed

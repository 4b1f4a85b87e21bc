"""The demo's checks read what happened: they pass on a story that happened and fail on one that did not."""

from e2e.demo.checks import Course, Dial, course, dial_of, fell_and_rose, stayed_at_one, warming_again
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


def test_a_limit_that_falls_and_rises_passes() -> None:
    dial = Dial(((0, 15), (1, 16), (5, 15), (6, 10), (8, 12), (9, 14), (10, 15)))
    limit = course(dial, 0, 4, 7, 11)
    assert limit == Course(before=15.5, lowest=10, after=14)
    assert all(check.passed for check in fell_and_rose(limit, limit))


def test_a_limit_that_stays_or_never_recovers_fails() -> None:
    steady = course(Dial(((0, 15), (5, 15), (8, 15), (9, 15))), 0, 4, 7, 11)
    assert [check.passed for check in fell_and_rose(steady, steady)] == [False, False, False]
    falling = course(Dial(((0, 15), (5, 12), (8, 11), (9, 10), (10, 11))), 0, 4, 7, 11)
    assert [check.passed for check in fell_and_rose(falling, falling)] == [True, False, False]
    assert course(Dial(((0, 15), (5, 12))), 0, 4, 7, 11) is None


def test_what_warms_up_later_ends_the_window() -> None:
    states = [seen(8, ("a", "ready", 9)), seen(9, ("a", "ready", 9), ("c", "loading", None))]
    assert warming_again(states, 7, 12) == 9
    assert warming_again(states[:1], 7, 12) == 12


def test_a_second_replica_under_half_a_load_fails() -> None:
    assert stayed_at_one([seen(0, ("a", "ready", 9))]).passed
    assert not stayed_at_one([seen(0, ("a", "ready", 9), desired=2)]).passed
    assert not stayed_at_one([]).passed

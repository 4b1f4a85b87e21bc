"""The rules of the replicas dial on pasts that a pocket calculator checks."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_operator.autoscaler.replicas.history import Comparison, Slot, late_at
from sluice_operator.autoscaler.replicas.rules import by_throughput, enough, growth, in_memory, lasting, model_error
from sluice_operator.autoscaler.settings import LAW
from sluice_perfmodel.shadow_queues import LOADS

# 100 requests a slot on one replica: 40 late at that load, 10 with two replicas, 1 with three, none with four or more.
LATE = tuple({1 / 3: 1.0, 0.5: 10.0, 2 / 3: 20.0, 0.8: 28.0}.get(load, 0.0 if load < 0.5 else 40.0) for load in LOADS)


QUIET = (0.0,) * len(LOADS)


def slot(begun: float = 0.0, replicas: int = 1, late: tuple[float, ...] = LATE, unreachable: float = 0.0) -> Slot:
    return Slot(begun, begun + 15.0, replicas, 100.0, unreachable, array("d", late))


def compared(missed: float, late: tuple[float, ...] = LATE, unreachable: float = 0.0) -> list[Comparison]:
    """Five minutes in which so many of 100 requests missed the SLO."""
    return [Comparison(0.0, 300.0, 100.0, unreachable, array("d", late), missed)]


def test_the_fewest_replicas_that_keep_the_misses_within_the_target() -> None:
    assert enough([slot()], 1.0, 0.01, 8) == 3
    assert enough([slot()], 1.0, 0.10, 8) == 2
    assert enough([slot()], 1.0, 0.40, 8) == 1


def test_a_calm_past_allows_the_misses_of_a_burst() -> None:
    calm = [slot(15.0 * place, late=QUIET) for place in range(1, 10)]
    assert enough([slot(), *calm], 1.0, 0.01, 8) == 2  # 10 of 1,000 requests


def test_no_more_than_the_replay_knows() -> None:
    everything_late = (100.0,) * len(LOADS)
    assert enough([slot(late=everything_late)], 1.0, 0.01, 8) == 1, "no number of replicas makes a difference"


def test_twice_the_load_needs_twice_the_replicas() -> None:
    assert enough([slot()], 2.0, 0.01, 16) == 6


def test_a_slot_of_a_larger_fleet_is_replayed_at_its_own_load() -> None:
    assert late_at([slot(replicas=2)], 2) == 40.0
    assert late_at([slot(replicas=2)], 4) == 10.0
    assert late_at([slot(replicas=2)], 100) == 0.0


@given(st.floats(1.0, 3.0), st.floats(0.001, 0.5), st.integers(1, 4))
def test_more_load_or_a_stricter_target_never_needs_fewer(load: float, share: float, replicas: int) -> None:
    past = [slot(replicas=replicas), slot(15.0, replicas, QUIET)]
    count = enough(past, load, share, 64)
    assert count <= enough(past, load * 1.2, share, 64)
    assert count <= enough(past, load, share / 2.0, 64)


def test_unreachable_requests_need_no_replica() -> None:
    assert enough([slot(late=QUIET, unreachable=5.0)], 1.0, 0.01, 8) == 1
    assert model_error(compared(5.0, QUIET, unreachable=5.0), 0.4) == 1.0


def test_the_replay_is_corrected_only_by_misses_beyond_chance() -> None:
    assert model_error([], 0.4) == 1.0
    assert model_error(compared(2.0, QUIET), 0.4) == 1.0
    assert model_error(compared(40.0), 0.4) == 1.0, "the replay has as many"
    assert model_error(compared(90.0), 0.4) == LAW.error_most
    below = tuple(20.0 if load == 1.0 else late for load, late in zip(LOADS, LATE, strict=True))
    came = 40.0 - LAW.significance * 40.0**0.5
    assert model_error(compared(40.0, below), 0.4) == pytest.approx(1.0 + 0.25 * (came - 20.0) / (40.0 - 20.0))


def test_a_steady_rise_is_continued_for_a_cold_start() -> None:
    ramp = [(30.0 * place, 10.0 + place) for place in range(10)]  # one request/s more every 30 s, 19 at the end
    assert growth(ramp, 60.0) == pytest.approx(21.0 / 18.5)
    assert growth(ramp, 6000.0) == LAW.growth_most


def test_a_burst_or_a_fall_is_no_trend() -> None:
    burst = [(30.0 * place, 40.0 if place == 5 else 10.0) for place in range(10)]
    fall = [(30.0 * place, 20.0 - place) for place in range(10)]
    assert growth(burst, 60.0) == growth(fall, 60.0) == growth(burst[:3], 60.0) == 1.0


def test_only_what_both_halves_of_a_minute_need_is_lasting() -> None:
    first, second = slot(0.0), slot(15.0)
    calm = slot(30.0, late=QUIET), slot(45.0, late=QUIET)
    assert lasting((first, second, *calm), 60.0, 1.0, 0.01, 8) == 1
    assert lasting((first, second, slot(30.0), slot(45.0)), 60.0, 1.0, 0.01, 8) >= 2
    assert lasting((first,), 15.0, 1.0, 0.01, 8) == 1, "half of the minute has not been seen"


def test_kv_occupancy_needs_replicas_for_its_target() -> None:
    assert in_memory(1.8, 0.9) == 2
    assert in_memory(1.81, 0.9) == 3


def test_minutes_in_which_the_replay_says_that_replicas_lack_correct_nothing() -> None:
    assert model_error(compared(90.0), 0.39) == 1.0
    assert model_error([*compared(90.0), *compared(10.0, QUIET)], 0.39) == LAW.error_most


def test_the_throughput_of_the_fleet_holds_what_comes() -> None:
    steady = [(30.0, 9.0), (60.0, 9.0)]
    assert [by_throughput(steady, load, 3.0, 16) for load in (0.3, 1.0, 1.01, 2.0)] == [1, 3, 4, 6]
    assert by_throughput(steady, 2.0, 3.0, 5) == 5, "no more than the last minutes may order"
    assert by_throughput([(30.0, 9.0), (60.0, 1.0)], 1.0, 3.0, 16) == 1, "both bins must need the replicas"
    assert by_throughput(steady[:1], 1.0, 3.0, 16) == by_throughput(steady, 1.0, 0.0, 16) == 1

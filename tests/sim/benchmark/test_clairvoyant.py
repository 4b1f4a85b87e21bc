"""The clairvoyant schedule, searched on a load of 15 minutes."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_sim.benchmark.run.tasks import MissTableTask, RemovalTask, ScheduleRunTask, Task
from sluice_sim.benchmark.search.clairvoyant import clairvoyant
from sluice_sim.benchmark.search.miss_counter import MissCounter
from sluice_sim.benchmark.search.miss_tables import cheapest, raised, table
from sluice_sim.benchmark.search.schedule import PIECE, Counts, Scheduled, cost, last_piece, seconds_saved
from sluice_sim.benchmark.track import Track, read_track
from sluice_sim.cluster.fleet import Fleet, restored
from sluice_sim.traces import Arrival, poisson

SECONDS = 3 * PIECE
LEAD = 60.0


def track() -> Track:
    """One replica of a slow engine holds about one of these requests per second."""
    return replace(
        read_track("T2"), profile="base=0.06,prefill_token=0.004,sequence=0.008,kv_token=2e-6", most=6, mode="coarse"
    )


def load() -> list[Arrival]:
    """Little, much, little."""
    return [
        Arrival(k * PIECE + one.at, one.prompt, one.output)
        for k, rate in enumerate((0.1, 2.4, 0.1))
        for one in poisson(rate, PIECE - 1.0, 60, 12, seed=k)
    ]


def miss_counter() -> MissCounter:
    return MissCounter(track(), replace(track().settings(), cold_start=LEAD), load(), SECONDS)


def test_a_schedule_costs_its_pieces_and_one_cold_start_per_added_replica() -> None:
    assert cost((1, 3, 2), lead=60.0) == 6 * PIECE + 120.0
    assert seconds_saved((1, 3, 2), 1, lead=60.0) == PIECE + 60.0
    assert seconds_saved((3, 3, 3), 1, lead=60.0) == PIECE - 60.0  # a dip saves a piece and costs a start


def test_the_last_piece_costs_the_rest_of_the_window() -> None:
    assert [last_piece(seconds) for seconds in (2_430.0, 600.0, 40.0)] == [30.0, PIECE, 40.0]
    assert cost((1, 3, 2), lead=60.0, last=30.0) == 4 * PIECE + 2 * 30.0 + 120.0
    assert seconds_saved((2, 3), 1, lead=60.0, last=30.0) == 30.0 + 60.0
    # A miss in the last piece spares thirty seconds, one in the first a whole piece: that is where it is taken.
    assert cheapest(({1: 1, 2: 0}, {2: 0}, {1: 1, 2: 0}), 1, lead=0.0, last=30.0) == (1, 2, 2)
    assert cheapest(({1: 1, 2: 0}, {2: 0}, {1: 1, 2: 0}), 1, lead=0.0) == (2, 2, 1)


OPTIONS = st.dictionaries(st.integers(1, 5), st.integers(0, 12), min_size=1, max_size=4)


@given(
    st.lists(OPTIONS, min_size=1, max_size=5),
    st.integers(0, 30),
    st.sampled_from([0.0, 60.0, 300.0]),
    st.sampled_from([30.0, PIECE]),
)
def test_no_schedule_of_a_table_is_cheaper_within_the_budget(
    tables: list[dict[int, int]], budget: int, lead: float, last: float
) -> None:
    def missed(counts: Sequence[int]) -> int:
        return sum(options[count] for options, count in zip(tables, counts, strict=True))

    found = cheapest(tuple(tables), budget, lead, last)
    every = list(itertools.product(*tables))
    within = [cost(counts, lead, last) for counts in every if missed(counts) <= budget]
    if within:
        assert missed(found) <= budget
        assert cost(found, lead, last) == min(within)
    else:
        assert missed(found) == min(map(missed, every))


def test_replicas_are_added_where_most_is_missed_unless_they_did_not_help() -> None:
    assert raised((2, 2, 2), (5, 90, 0), excess=50, most=4, ineffective=set()) == (2, 3, 2)
    assert raised((2, 2, 2), (5, 90, 0), excess=93, most=4, ineffective=set()) == (3, 3, 2)
    assert raised((2, 2, 2), (5, 90, 0), excess=50, most=4, ineffective={(1, 2)}) == (3, 2, 2)
    assert raised((4, 4, 2), (5, 90, 0), excess=50, most=4, ineffective=set()) == (4, 4, 2)


def test_a_restored_fleet_continues_as_the_original() -> None:
    law, settings = Scheduled((1, 4, 1), LEAD), replace(track().settings(1), cold_start=LEAD)
    fleet, saved = Fleet(track().spec(), settings, law), list[bytes]()
    whole = fleet.run(load(), lambda now: saved.append(fleet.snapshot()) if now == 280.0 else None)
    rest = restored(saved[0], law).run(one for one in load() if one.at >= 280.0)
    assert rest.records == [one for one in whole.records if one.arrived_at >= 280.0]
    assert (rest.seconds, rest.pod_lifetimes) == (whole.seconds, whole.pod_lifetimes)
    assert rest.desired == [(at, count) for at, count in whole.desired if at > 280.0]


def test_a_table_has_sufficient_and_insufficient_counts() -> None:
    found = table(miss_counter(), 0, 3)
    assert min(found[1].values()) == 0  # enough replicas are in there
    assert max(found[1].values()) > 0.1 * miss_counter().offered(1)  # and too few
    assert min(found[0], default=0) == 1  # the quiet pieces get by with the fewest


def test_the_local_cost_of_a_removal_equals_its_cost_in_the_whole_schedule() -> None:
    known, counts = miss_counter(), (2, 3, 1)
    extra = known.removal_costs(counts, 0, 3, limit=10_000)
    whole = sum(known.misses((2, 2, 1), 0, 3)) - sum(known.misses(counts, 0, 3))
    assert whole > 10
    assert extra[1:] == [pytest.approx(whole, abs=2), None]  # the last has none to lose
    assert known.removal_costs(counts, 1, 2, limit=3) == [3]  # no further than asked


Measure = Callable[[Task], dict[str, Any]]


def driven(measure: Measure, pieces: int = 3) -> tuple[Counts, list[Task]]:
    """The schedule that is found where each task comes out so, and the tasks."""
    window = replace(track().window("test"), seconds=pieces * PIECE)
    plan, asked = clairvoyant(replace(track(), windows=(("test", window),)), "test"), list[Task]()
    tasks = next(plan)
    while True:
        asked += tasks
        try:
            tasks = plan.send([measure(task) for task in tasks])
        except StopIteration as end:
            return end.value.counts, asked


def test_no_piece_of_the_schedule_can_lose_a_replica_and_the_peak_has_the_most() -> None:
    known = miss_counter()

    def measure(task: Task) -> dict[str, Any]:
        if isinstance(task, MissTableTask):
            found = table(known, 0, 3)
            return {"offered": [known.offered(k) for k in range(3)], "missed": [sorted(one.items()) for one in found]}
        if isinstance(task, ScheduleRunTask):
            return {"missed": known.misses(task.counts, 0, 3)}
        if isinstance(task, RemovalTask):
            return {"extra": known.removal_costs(task.counts, 0, 3, task.limit)}
        return {"gpu_hours": 1.0}

    counts, _ = driven(measure)
    allowed = 0.01 * len(load())
    assert sum(known.misses(counts, 0, 3)) <= allowed
    assert counts[1] > max(counts[0], counts[2])
    for piece in range(3):
        fewer = tuple(count - (k == piece) for k, count in enumerate(counts))
        if min(fewer) >= 1:
            assert sum(known.misses(fewer, 0, 3)) > allowed


class World:
    """Pieces of a thousand requests, whose misses are `missed(piece, count)`, and what a search is told of them."""

    def __init__(self, missed: Callable[[int, int], int], told: Callable[[int, int], int], believed: int = 0) -> None:
        self.missed, self.told, self.believed = missed, told, believed
        self.wholes: list[Counts] = []

    def measure(self, task: Task) -> dict[str, Any]:
        if isinstance(task, MissTableTask):
            options = [[(n, self.told(k, n)) for n in (2, 3, 4)] for k in range(3)]
            return {"offered": [1000] * 3, "missed": options}
        if isinstance(task, ScheduleRunTask):
            self.wholes.append(task.counts)
            return {"missed": [self.missed(k, count) for k, count in enumerate(task.counts)]}
        if isinstance(task, RemovalTask):
            extra = [self.missed(k, n - 1) - self.missed(k, n) - self.believed for k, n in enumerate(task.counts)]
            return {"extra": [one if n > 1 else None for one, n in zip(extra, task.counts, strict=True)]}
        return {"gpu_hours": 1.0}


def steep(_: int, count: int) -> int:
    """Four are enough; each one less misses more."""
    return (100, 100, 40, 8, 0, 0, 0)[count]


def test_optimistic_tables_are_corrected_by_runs_of_the_whole_schedule() -> None:
    world = World(steep, lambda *_: 0)
    counts, _ = driven(world.measure)
    assert counts == (3, 3, 3)  # 24 of the 30 that may be missed
    assert world.wholes[0] == (2, 2, 2)


def test_replicas_are_added_until_the_schedule_reaches_the_target() -> None:
    counts, _ = driven(World(lambda k, n: steep(k, n - 1), lambda *_: 500).measure)
    assert counts == (4, 4, 4)


def test_an_unreachable_target_gets_the_schedule_with_the_fewest_misses() -> None:
    counts, asked = driven(World(lambda k, n: 900 - n, lambda k, n: 900 - n).measure)
    assert counts == (6, 6, 6)  # each helps a little
    assert not any(isinstance(task, RemovalTask) for task in asked)


def test_no_replicas_are_added_if_none_reduces_the_misses() -> None:
    counts, _ = driven(World(lambda *_: 900, lambda *_: 900).measure)
    assert counts == (2, 2, 2)


def test_additions_that_only_move_misses_end() -> None:
    wholes: list[Counts] = []

    def measure(task: Task) -> dict[str, Any]:
        if not isinstance(task, ScheduleRunTask):
            return World(steep, lambda *_: 0).measure(task)
        wholes.append(task.counts)
        assert len(wholes) < 50
        fewest = task.counts.index(min(task.counts))
        return {"missed": [40 * (k == fewest) for k in range(3)]}  # 30 may be missed

    counts, _ = driven(measure)
    assert counts == (2, 2, 2)


def test_further_removals_are_tried_after_the_nearest_ones_failed() -> None:
    """Only the last of twenty can be spared, and a look around it says that it is the furthest from that."""

    def measure(task: Task) -> dict[str, Any]:
        if isinstance(task, MissTableTask):
            return {"offered": [1000] * 20, "missed": [[(2, 0)]] * 20}
        if isinstance(task, ScheduleRunTask):
            return {"missed": [0 if k == 19 or n >= 2 else 500 for k, n in enumerate(task.counts)]}
        if isinstance(task, RemovalTask):
            return {"extra": [201 + k if n > 1 else None for k, n in enumerate(task.counts)]}  # 200 may be missed
        return {"gpu_hours": 1.0}

    counts, _ = driven(measure, pieces=20)
    assert counts == (*[2] * 19, 1)


def test_a_removal_is_decided_by_a_run_of_the_whole_schedule() -> None:
    world = World(steep, steep, believed=1_000)  # every removal looks free
    counts, _ = driven(world.measure)
    assert counts == (3, 3, 3)
    assert {(2, 3, 3), (3, 2, 3), (3, 3, 2)} <= set(world.wholes)

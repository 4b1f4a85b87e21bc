"""The schedule that knows the future: searched on a load of a quarter of an hour."""

from dataclasses import replace

import pytest

from sluice_sim.traces import Arrival, poisson
from sluice_sim.tracks.clairvoyant import Judge, Path, Step, cost, joined, path, saving, verified
from sluice_sim.tracks.schedule import PIECE
from sluice_sim.tracks.track import Track, read_track

SECONDS = 3 * PIECE


def track() -> Track:
    """One replica of a slow engine holds about 1.5 of these requests per second."""
    return replace(
        read_track("T2"), profile="base=0.03,prefill_token=0.0002,sequence=0.004,kv_token=2e-6", most=6, mode="coarse"
    )


def judge() -> Judge:
    """Little, much, little."""
    found = [
        Arrival(k * PIECE + one.at, one.prompt, one.output)
        for k, rate in enumerate((0.5, 4.0, 0.5))
        for one in poisson(rate, PIECE - 1.0, 60, 40, seed=k)
    ]
    return Judge(track(), replace(track().settings(), cold_start=60.0), found, SECONDS)


def test_a_schedule_costs_its_pieces_and_a_cold_start_per_replica_that_joins() -> None:
    assert cost((1, 3, 2), lead=60.0) == 6 * PIECE + 120.0
    assert saving((1, 3, 2), 1, lead=60.0) == PIECE + 60.0
    assert saving((3, 3, 3), 1, lead=60.0) == PIECE - 60.0  # a dip saves a piece and costs a start


def test_the_cheapest_steps_of_all_windows_are_taken_first_and_each_windows_in_its_order() -> None:
    one = Path((3, 3), (Step(0, 0, 300.0), Step(0, 50, 300.0)))
    other = Path((4,), (Step(2, 10, 300.0), Step(2, 0, 300.0)))
    counts, taken = joined([one, other], budget=10)
    assert counts == [2, 3, 2]
    assert [(window, step.missed) for window, step in taken] == [(0, 0), (1, 10), (1, 0)]


def test_no_piece_of_the_schedule_can_spare_a_replica_and_the_peak_has_the_most() -> None:
    known = judge()
    counts = verified(known, [path(known, 0, known.pieces)])
    allowed = 0.01 * known.requests
    assert sum(known.misses(counts, 0, known.pieces)) <= allowed
    assert counts[1] > max(counts[0], counts[2])
    for piece in range(known.pieces):
        fewer = tuple(count - (k == piece) for k, count in enumerate(counts))
        if min(fewer) >= 1:
            assert sum(known.misses(fewer, 0, known.pieces)) > allowed


class Dearer(Judge):
    """Where every replica less than twenty costs two requests, whatever a search over windows believed."""

    def misses(self, counts: tuple[int, ...], first: int, end: int) -> list[int]:
        return [2 * (20 - count) for count in counts[first:end]]


def test_paths_that_promised_too_much_are_taken_less_far_not_given_up() -> None:
    found = [Arrival(k / 10, 60, 40) for k in range(1000)]
    known, said = Dearer(track(), track().settings(), found, PIECE), list[str]()
    believed = Path((20,), tuple(Step(0, 1, PIECE) for _ in range(15)))
    assert verified(known, [believed], note=said.append) == (15,)  # ten may be missed: five replicas less
    assert len(said) == 7  # and the search itself came there: nothing was left to be trimmed
    assert len(set(said)) > 2


def test_an_empty_piece_needs_the_fewest() -> None:
    found = [one for one in poisson(0.5, PIECE, 60, 40, seed=1) if one.at < PIECE]
    known = Judge(track(), track().settings(), found, SECONDS)
    assert known.offered(1, 3) == 0
    counts = verified(known, [path(known, 0, known.pieces)])
    assert counts[1:] == (1, 1)
    assert known.work(2) == pytest.approx(0.0)

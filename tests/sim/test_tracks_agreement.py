"""The comparison of both speeds: the same requests both ways, and a disagreement is one."""

from dataclasses import replace

import pytest

from sluice_sim.tracks.agreement import HOURS, Hour, Pair, run
from sluice_sim.tracks.requests import requests
from sluice_sim.tracks.track import read_track


@pytest.fixture(scope="module")
def pair() -> Pair:
    piece = Hour("T2", 600, 30)
    return Pair(piece, run(piece, "exact"), run(piece, "coarse"))


def test_both_speeds_serve_the_same_requests_of_the_piece(pair: Pair) -> None:
    assert (pair.exact.mode, pair.coarse.mode) == ("exact", "coarse")
    assert pair.exact.requests == pair.coarse.requests == len(requests(pair.hour.narrowed(), "test"))


def test_half_a_minute_of_bursts_agrees(pair: Pair) -> None:
    assert pair.agree


@pytest.mark.parametrize("field", ["attainment", "gpu_hours"])
def test_a_tenth_more_in_either_figure_is_a_disagreement(pair: Pair, field: str) -> None:
    off = replace(pair.coarse, **{field: 1.1 * getattr(pair.exact, field)})
    assert not replace(pair, coarse=off).agree


def test_the_hours_are_inside_their_tracks() -> None:
    for hour in HOURS:
        windows = dict(read_track(hour.track).windows).values()
        assert hour.start + hour.seconds <= max(window.start + window.seconds for window in windows)

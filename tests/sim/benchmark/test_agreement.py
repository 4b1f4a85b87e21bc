"""Agreement of exact and coarse mode: both serve the same requests, and a difference beyond the bound is reported."""

from dataclasses import replace
from pathlib import Path

import pytest

from sluice_sim.benchmark.agreement import HOURS, Hour, Pair, compare, job, run
from sluice_sim.benchmark.run.requests import requests
from sluice_sim.benchmark.run.store import Store, key_of
from sluice_sim.benchmark.track import read_track
from sluice_sim.cluster.scenario import MODES


@pytest.fixture(scope="module")
def pair() -> Pair:
    piece = Hour("T2", 600, 30)
    return Pair(piece, run(piece, "exact"), run(piece, "coarse"))


def test_both_modes_serve_the_same_requests(pair: Pair) -> None:
    assert (pair.exact.mode, pair.coarse.mode) == ("exact", "coarse")
    assert pair.exact.requests == pair.coarse.requests == len(requests(pair.hour.narrowed(), "test"))


def test_half_a_minute_of_bursts_agrees(pair: Pair) -> None:
    assert pair.agree


@pytest.mark.parametrize("field", ["attainment", "gpu_hours"])
def test_a_tenth_more_in_either_figure_is_a_disagreement(pair: Pair, field: str) -> None:
    off = replace(pair.coarse, **{field: 1.1 * getattr(pair.exact, field)})
    assert not replace(pair, coarse=off).agree


def test_a_stored_run_is_not_repeated(pair: Pair, tmp_path: Path) -> None:
    store, said = Store(tmp_path / "agreement.jsonl"), list[str]()
    for mode, found in zip(MODES, (pair.exact, pair.coarse), strict=True):
        store.put(key_of(pair.hour.narrowed(), job(pair.hour, mode)), "known", found.to_dict())
    (again,) = compare([pair.hour], store, say=said.append)
    assert not said
    assert again.attainment_off == pytest.approx(pair.attainment_off, abs=1e-5)


def test_the_compared_hours_lie_inside_their_tracks() -> None:
    for hour in HOURS:
        windows = dict(read_track(hour.track).windows).values()
        assert hour.start + hour.seconds <= max(window.start + window.seconds for window in windows)

"""The cyclic garbage collector is suspended during a simulation, and only then."""

import gc

import pytest

from sluice_sim.benchmark.run.job import Job, simulate
from sluice_sim.benchmark.track import read_track
from sluice_sim.collector import uncollected


def test_the_collector_is_enabled_again_after_an_exception() -> None:
    with pytest.raises(KeyError), uncollected():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


def test_a_collector_that_was_disabled_stays_disabled() -> None:
    with uncollected():
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_simulation_creates_no_reference_cycles() -> None:
    track = read_track("T4")
    gc.collect()
    simulate(track, Job(track="T4", window="short_test", law="sluice"))
    assert gc.collect() < 100, "12,000 requests and their decisions leave none"

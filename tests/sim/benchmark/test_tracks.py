"""The tracks of the score: their fields are complete, and their requests are a function of their files."""

from dataclasses import replace

import pytest

from sluice_sim.benchmark.run.job import CLAIRVOYANT, Job, law_of
from sluice_sim.benchmark.run.requests import requests
from sluice_sim.benchmark.run.tasks import endless, lower_bound
from sluice_sim.benchmark.search.schedule import Scheduled
from sluice_sim.benchmark.track import NAMES, read_track
from sluice_sim.benchmark.variants import VARIANTS
from sluice_sim.traces import Arrival


@pytest.mark.parametrize("name", NAMES)
def test_every_track_has_hardware_slo_targets_and_four_windows(name: str) -> None:
    track = read_track(name)
    assert {window for window, _ in track.windows} == {"train", "test", "short_train", "short_test"}
    assert track.words and track.hardware and track.hardware_profile().model.base > 0
    assert track.least <= track.begin <= track.most
    spec = track.spec()
    assert spec.slo.attainment_percent == "99"
    assert (spec.scaling.min_replicas, spec.scaling.max_replicas) == (track.least, track.most)
    for change in VARIANTS.values():
        assert change(track.settings()).mode == track.mode


def test_an_unknown_track_is_named_beside_the_known_ones() -> None:
    with pytest.raises(KeyError, match="no track is called 'T9'; there are T1, T2"):
        read_track("T9")


def test_train_and_test_are_different_requests_of_the_same_load() -> None:
    track = read_track("T4")
    train, test = requests(track, "train"), requests(track, "test")
    assert train == requests(track, "train")
    assert train != test
    assert len(train) == pytest.approx(len(test), rel=0.05)
    assert all((one.prompt, one.output) == (4000, 1000) for one in test)
    assert max(one.at for one in test) < track.window("test").seconds


def test_the_overload_track_has_its_priorities_and_tenants() -> None:
    found = requests(read_track("T5"), "short_test")
    assert sum(one.priority > 0 for one in found) / len(found) == pytest.approx(0.2, abs=0.02)
    assert sum(one.tenant == "a" for one in found) / len(found) == pytest.approx(0.6, abs=0.02)


def test_the_wave_track_equals_the_overload_track_during_the_wave() -> None:
    steady, waves = requests(read_track("T5"), "test"), requests(read_track("T5b"), "test")
    seconds = read_track("T5b").window("test").seconds

    def within(found: tuple[Arrival, ...], first: float, last: float) -> list[tuple[float, int]]:
        return [(one.at, one.prompt) for one in found if first * seconds <= one.at < last * seconds]

    assert within(waves, 0.34, 0.66) == within(steady, 0.34, 0.66)
    for first, last in ((0.0, 0.34), (0.66, 1.0)):
        few, all_ = within(waves, first, last), within(steady, first, last)
        assert set(few) < set(all_)
        assert len(few) / len(all_) == pytest.approx(0.25, abs=0.03)


def test_a_schedule_has_its_replicas_ready_when_their_piece_begins() -> None:
    schedule = Scheduled((2, 5, 1), lead=60.0)
    assert [schedule.at(now) for now in (0, 299, 300, 599, 600, 10_000)] == [2, 2, 5, 5, 1, 1]


def test_the_clairvoyant_launches_one_cold_start_of_its_variant_early() -> None:
    track = read_track("T2")
    job = Job(track="T2", window="test", law=CLAIRVOYANT, counts=(1, 2), variant="cold start 300 s")
    assert law_of(track, job) == Scheduled((1, 2), lead=300.0)
    assert law_of(track, replace(job, variant="plain")) == Scheduled((1, 2), lead=track.cold_start)


def test_an_endless_cache_holds_what_came_before_but_never_a_prompts_last_token() -> None:
    first, same, other = Arrival(0, 1024, 1, (1, 2)), Arrival(1, 1024, 1, (1, 2)), Arrival(2, 1024, 1, (1, 3))
    assert endless([first, same]) == pytest.approx(1023 / 2048)
    assert endless([first, same, other]) == pytest.approx((1023 + 512) / 3072)


def test_the_work_bound_is_below_what_any_run_cost() -> None:
    assert 0.5 < lower_bound(read_track("T4"), "test") < 3.9

"""The search along a knob and the score of a law: plans run on given figures in place of simulations."""

from collections.abc import Callable
from typing import Any

import pytest

from sluice_sim.benchmark.run.effort import FULL, SHORT, Effort
from sluice_sim.benchmark.run.job import STATIC, Job
from sluice_sim.benchmark.run.plan import (
    LawScore,
    Unreachable,
    attained_at,
    cost_at_target,
    score_law,
    static_peak,
    tune,
    variant_settings,
)
from sluice_sim.benchmark.run.tasks import WorkBoundTask
from sluice_sim.benchmark.search.clairvoyant import Plan
from sluice_sim.benchmark.search.knob import Trial, evenly_spaced
from sluice_sim.benchmark.track import NAMES, read_track
from sluice_sim.benchmark.variants import VARIANTS
from sluice_sim.policies.registry import LAWS

TRACK = read_track("T4")
Law = Callable[[Job], tuple[float, float]]  # → attainment, GPU-hours


def driven(plan: Plan, law: Law, asked: list[Job]) -> Any:
    """The plan's result where every job comes out as `law` says."""
    tasks = next(plan)
    while True:
        found = []
        for job in tasks:
            if isinstance(job, WorkBoundTask):
                found.append({"gpu_hours": 0.0})
                continue
            assert isinstance(job, Job)
            asked.append(job)
            attainment, hours = law(job)
            found.append({"attainment": attainment, "gpu_hours": hours})
        try:
            tasks = plan.send(found)
        except StopIteration as end:
            return end.value


def setting(job: Job) -> float:
    return LAWS[job.law].knob.default if job.setting is None else job.setting


def smooth(job: Job) -> tuple[float, float]:
    """A knob that buys attainment with hours: 99 % from 30 down, cheaper the higher it stands."""
    return min(1.0, 1.29 - setting(job) / 100), 10.0 + 100.0 / setting(job)


def test_a_knob_is_searched_in_at_most_nine_runs_and_finds_the_grids_cheapest_that_reaches_the_target() -> None:
    asked: list[Job] = []
    found = driven(tune(TRACK, "hpa-running", FULL), smooth, asked)
    assert found[0].setting == 24.0
    assert len(asked) == len({job.setting for job in asked}) <= FULL.tuning_runs == 9


@pytest.mark.parametrize("law", ["hpa-running", "kpa", "apa", "sluice", "wva-v2"])
def test_the_cheapest_grid_setting_is_found_in_six_runs(law: str) -> None:
    grid = LAWS[law].knob.grid
    for last in grid[:-1]:

        def steps(job: Job, edge: float = last) -> tuple[float, float]:
            return (0.995 if setting(job) <= edge else 0.95), 10.0 - setting(job) / max(grid)

        asked: list[Job] = []
        found = driven(tune(TRACK, law, FULL), steps, asked)
        assert found[0].setting == last
        assert len(asked) <= 6


def test_a_law_far_below_the_target_is_left_after_thirds_and_edges() -> None:
    asked: list[Job] = []
    found = driven(tune(TRACK, "hpa-queue", FULL), lambda job: (0.8 - abs(setting(job) - 4.0) / 100, 5.0), asked)
    assert (found[0].setting, len(asked)) == (4.0, 5)


def test_a_knob_without_effect_is_not_searched_further() -> None:
    asked: list[Job] = []
    found = driven(tune(TRACK, "sluice", FULL), lambda _: (0.995, 4.0), asked)
    assert (found[0].setting, len(asked)) == (0.75, 3)  # the nearest to its default


def test_a_grid_whose_edge_is_best_is_extended_beyond_it() -> None:
    asked: list[Job] = []
    found = driven(tune(TRACK, "hpa-running", FULL), lambda job: (1.0, 1000.0 / setting(job)), asked)
    assert found[0].setting > max(LAWS["hpa-running"].knob.grid)
    assert len(asked) <= FULL.tuning_runs


def test_where_no_setting_reaches_the_target_the_nearest_is_taken() -> None:
    found = driven(tune(TRACK, "hpa-running", FULL), lambda job: (0.9 - abs(setting(job) - 24) / 1e4, 5.0), [])
    assert found[0].setting == 24.0


def test_a_law_that_misses_on_test_gets_an_interpolated_cost() -> None:
    def worse_on_test(job: Job) -> tuple[float, float]:
        attainment = 1.29 - setting(job) / 100 - (0.10 if job.window == "test" else 0.0)
        return min(1.0, attainment), smooth(job)[1]

    result: LawScore = driven(score_law(TRACK, "hpa-running", FULL), worse_on_test, [])
    assert result.tuned.setting == 24.0 and result.tuned.attainment < 0.99
    assert result.gpu_hours is not None and result.gpu_hours > result.tuned.gpu_hours
    assert result.default_gpu_hours == pytest.approx(10.0 + 100.0 / 16.0)  # the default reached it


def test_a_missing_tuned_setting_is_followed_by_adjacent_stricter_ones_even_if_the_default_reaches_the_target() -> None:
    def at(job: Job) -> tuple[float, float]:
        reached = setting(job) <= (48.0 if job.window == "train" else 32.0)
        return (0.995 if reached else 0.95), 10.0 + 100.0 / setting(job)

    result: LawScore = driven(score_law(TRACK, "hpa-running", FULL), at, [])
    assert (result.tuned.setting, result.tuned.reached) == (48.0, False)
    assert [one.setting for one in result.curve] == [16.0, 32.0, 48.0]  # 16 is the default; 32 is between
    assert result.gpu_hours is not None and 10.0 + 100.0 / 48.0 < result.gpu_hours < 10.0 + 100.0 / 32.0


@pytest.mark.parametrize("law", LAWS)
def test_every_law_is_scored_by_the_same_rule(law: str) -> None:
    grid, asked = LAWS[law].knob.grid, list[Job]()

    def at(job: Job) -> tuple[float, float]:
        return (0.995 if setting(job) <= grid[4] else 0.95), 10.0 - setting(job) / grid[-1]

    result: LawScore = driven(score_law(TRACK, law, FULL), at, asked)
    assert result.tuned.setting == grid[4]
    assert {setting(job) for job in asked if job.window == "test"} == {LAWS[law].knob.default, grid[4], grid[5]}


def test_a_tuned_law_gets_as_many_stricter_settings_per_variant_as_sluice() -> None:
    result: LawScore = driven(score_law(TRACK, "kpa", FULL), lambda job: (0.995, 10.0 - setting(job) / 50), [])
    known = {*LAWS["kpa"].knob.grid, *(one.setting for one in result.train)}
    assert result.tuned.setting == max(known)
    assert variant_settings(result, 4) == sorted(known, reverse=True)[:4]


@pytest.mark.parametrize(("law", "most"), [("admission-only", 1.0), ("wva-v1", 5.0), ("hpa-kv", 1.0)])
def test_a_search_beyond_the_grid_stays_within_the_knobs_range(law: str, most: float) -> None:
    asked: list[Job] = []
    found = driven(tune(TRACK, law, FULL), lambda job: (1.0, 10.0 - setting(job)), asked)
    assert found[0].setting == max(setting(job) for job in asked) == most


def test_a_law_that_never_reaches_the_target_has_no_cost() -> None:
    result: LawScore = driven(score_law(TRACK, "hpa-queue", FULL), lambda _: (0.5, 1.0), [])
    assert result.gpu_hours is None


def test_the_short_benchmark_tries_few_settings_spread_over_the_grid() -> None:
    asked: list[Job] = []
    grid = LAWS["hpa-running"].knob.grid
    found = driven(tune(TRACK, "hpa-running", SHORT), smooth, asked)
    assert [job.setting for job in asked] == [grid[1], grid[4], grid[7]] == evenly_spaced(grid, SHORT.tuning_runs)
    assert found[0].attainment >= 0.99
    assert {job.window for job in asked} == {"short_train"}


def test_the_short_benchmark_runs_an_untuned_law_at_its_default_only() -> None:
    asked: list[Job] = []
    assert "apa" not in SHORT.tuned_laws
    result: LawScore = driven(score_law(TRACK, "apa", SHORT), lambda _: (0.995, 2.0), asked)
    assert [(job.window, job.setting) for job in asked if job.setting is None] == [("short_test", None)]
    assert {LAWS["apa"].knob.default, None} >= {job.setting for job in asked}
    assert (result.train, result.gpu_hours) == ((), 2.0)


@pytest.mark.parametrize("effort", [FULL, SHORT])
def test_an_effort_names_existing_laws_tracks_and_variants(effort: Effort) -> None:
    assert {*effort.tuned_laws, *effort.overload_laws} <= LAWS.keys()
    assert {*effort.clairvoyant_tracks, *effort.variant_tracks} <= set(NAMES)
    assert set(effort.variant_tracks) <= set(effort.clairvoyant_tracks)  # their R99 is over a clairvoyant
    assert set(effort.variants) <= VARIANTS.keys()
    assert all(name in effort.omissions for name in effort.tuned_laws) or effort is FULL


def test_the_static_peak_is_the_smallest_fleet_that_reaches_the_target() -> None:
    asked: list[Job] = []
    replicas, found = driven(
        static_peak(TRACK, "test"), lambda job: (1.0 if (job.setting or 0) >= 7 else 0.9, job.setting or 0), asked
    )
    assert (replicas, found["gpu_hours"]) == (7, 7.0)
    assert {job.law for job in asked} == {STATIC}


def test_an_unreachable_target_is_an_error_with_the_best_attainment() -> None:
    asked: list[Job] = []
    with pytest.raises(Unreachable, match=r"T4 test: 32 replicas .* 90\.00%"):
        driven(static_peak(TRACK, "test"), lambda job: (0.9, job.setting or 0), asked)
    assert max(job.setting or 0 for job in asked) == 4 * TRACK.most


def test_attainment_at_given_gpu_hours_is_interpolated_between_adjacent_settings() -> None:
    curve = [Trial(1, {"attainment": 0.9, "gpu_hours": 1.0}), Trial(2, {"attainment": 1.0, "gpu_hours": 3.0})]
    assert attained_at(curve, 2.0) == pytest.approx(0.95)
    assert attained_at(curve, 0.5) is None
    assert cost_at_target(curve[1], curve) == 3.0

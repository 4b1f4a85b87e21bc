"""The search along a knob and the score of a law: plans run on given figures in place of simulations."""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any

import pytest

import sluice_engine
import sluice_sim
from sluice_sim.benchmark.run import runner as runner_module
from sluice_sim.benchmark.run import store as store_module
from sluice_sim.benchmark.run.effort import FULL, SHORT, Effort
from sluice_sim.benchmark.run.job import CLAIRVOYANT, STATIC, Job, simulate
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
from sluice_sim.benchmark.run.runner import Runner
from sluice_sim.benchmark.run.sources import sources
from sluice_sim.benchmark.run.store import Store, key_of
from sluice_sim.benchmark.run.tasks import Task, WorkBoundTask, key, measure
from sluice_sim.benchmark.search.clairvoyant import Plan
from sluice_sim.benchmark.search.knob import Trial, evenly_spaced
from sluice_sim.benchmark.track import NAMES, Window, WindowName, read_track
from sluice_sim.benchmark.variants import VARIANTS
from sluice_sim.cluster.scenario import MODES, Mode
from sluice_sim.data import FOLDER
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


def test_workers_end_with_the_process_that_started_them_although_it_was_killed() -> None:
    code = """
import os
from sluice_sim.benchmark.run.runner import worker_pool
if __name__ == "__main__":
    pool = worker_pool(1)
    print(pool.submit(os.getpid).result(), flush=True)
    os.kill(os.getpid(), 9)
"""
    started = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=120, check=False)
    assert (started.returncode, started.stdout.strip().isdigit()) == (
        -9,
        True,
    )  # the pipe's last writer, the worker, is gone


def test_a_stored_piece_is_not_measured_again_and_a_truncated_one_is(tmp_path: Path) -> None:
    def bounds() -> Plan:
        found = yield [WorkBoundTask("T4", "test"), WorkBoundTask("T4", "train")]
        return [one["gpu_hours"] for one in found]

    path = tmp_path / "pieces.jsonl"
    first = Runner(Store(path), workers=0)
    (hours,) = first.run([bounds()])
    assert first.measured == 2
    again = Runner(Store(path), workers=0)
    assert again.run([bounds()]) == [hours]
    assert again.measured == 0
    path.write_text(path.read_text()[:-20])
    cut = Runner(Store(path), workers=0)
    cut.run([bounds()])
    assert cut.measured == 1


def test_results_of_running_tasks_are_stored_when_another_task_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, failed = Event(), Event()

    def measured(task: Task) -> dict[str, Any]:
        if isinstance(task, WorkBoundTask) and task.window == "train":
            begun.wait(60.0)
            failed.set()
            raise RuntimeError("no memory left")
        begun.set()
        failed.wait(60.0)
        return measure(task)

    def bound(window: WindowName) -> Plan:
        yield [WorkBoundTask("T4", window)]

    monkeypatch.setattr(runner_module, "worker_pool", ThreadPoolExecutor)
    kind = replace(runner_module.TRACKS, measure=measured)
    runner = Runner(Store(tmp_path / "pieces.jsonl"), workers=2, kind=kind)
    with pytest.raises(RuntimeError, match="no memory left"):
        runner.run([bound("train"), bound("test")])
    assert key(WorkBoundTask("T4", "test")) in Store(runner.store.path)
    assert key(WorkBoundTask("T4", "train")) not in runner.store


def test_a_piece_stored_after_a_truncated_line_is_kept(tmp_path: Path) -> None:
    store = Store(tmp_path / "pieces.jsonl")
    store.put("a", "one", {"x": 1})
    store.put("b", "two", {"x": 2})
    store.path.write_text(store.path.read_text()[:-20])
    Store(store.path).put("c", "three", {"x": 3})
    again = Store(store.path)
    assert ("a" in again, "b" in again, again["c"]) == (True, False, {"x": 3})


def test_keep_removes_pieces_that_are_not_listed(tmp_path: Path) -> None:
    store = Store(tmp_path / "pieces.jsonl")
    store.put("a", "one", {"x": 1})
    store.put("b", "two", {"x": 2})
    store.keep(["b"])
    assert "a" not in Store(store.path) and Store(store.path)["b"] == {"x": 2}
    assert list(tmp_path.iterdir()) == [store.path]


def test_an_interrupted_keep_loses_no_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "pieces.jsonl")
    store.put("a", "one", {"x": 1})
    store.put("b", "two", {"x": 2})

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", stopped)
    with pytest.raises(KeyboardInterrupt):
        store.keep(["b"])
    assert Store(store.path)["a"] == {"x": 1} and Store(store.path)["b"] == {"x": 2}


def test_a_piece_depends_on_its_job_its_track_and_its_laws_code() -> None:
    job = Job(track="T4", window="test", law="kpa", setting=1.0)
    assert key_of(TRACK, job) == key_of(read_track("T4"), job)
    other_digests = [
        key_of(TRACK, Job(track="T4", window="test", law="kpa", setting=2.0)),
        key_of(TRACK, Job(track="T4", window="test", law="sluice", setting=1.0)),
        key_of(read_track("T2"), job),
        key_of(TRACK, job, "more"),
    ]
    assert len({key_of(TRACK, job), *other_digests}) == 5


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("law", ["sluice", "static", CLAIRVOYANT, "kpa"])
def test_a_pieces_key_covers_every_file_of_its_run(law: str, mode: Mode) -> None:
    files = {path.relative_to(Path(__file__).parents[3]).as_posix().split("/", 1)[1] for path in sources(law, mode)}
    exact = {
        "sluice_sim/engine/exact.py", "sluice_engine/scheduler/scheduler.py", "sluice_engine/scheduler/planner.py",
        "sluice_operator/engines/exposition.py", "sluice_engine/control/load_window.py",
    }  # fmt: skip
    assert files & exact == (exact if mode == "exact" else set())
    assert files >= {
        "sluice_sim/engine/step_times.py", "sluice_sim/cluster/fleet.py", "sluice_sim/policies/policy.py",
        "sluice_sim/traces/servegen.py", "sluice_operator/api/spec.py", "sluice_sim/engine/coarse/engine.py",
        "sluice/contract.py", "sluice_perfmodel/concurrency_limit.py", "sluice_engine/control/limit_controller.py",
        "sluice_engine/scheduler/prefill_budget.py", "sluice_engine/scheduler/load_shedding/lateness.py", "sluice_engine/scheduler/policies/priority.py",
    }  # fmt: skip
    assert not any("/server/" in name or "/model/" in name for name in files)
    for name in (
        "sluice_operator/autoscaler/decide.py",
        "sluice_operator/autoscaler/replicas/rules.py",
        "sluice_sim/policies/sluice.py",
    ):
        assert (name in files) == (law == "sluice")
    for name in ("sluice_sim/benchmark/search/schedule.py", "sluice_operator/autoscaler/admission/bounds.py"):
        assert (name in files) == (law in ("static", CLAIRVOYANT) or (law == "sluice" and "schedule" not in name))
    assert ("sluice_sim/policies/kpa.py" in files) == (law == "kpa")
    clairvoyant = {"sluice_sim/benchmark/search/miss_tables.py", "sluice_sim/benchmark/run/tasks.py"}
    assert files & clairvoyant == (clairvoyant if law == CLAIRVOYANT else set())


@pytest.mark.parametrize("law", ["sluice", "static", CLAIRVOYANT, "kpa"])
def test_a_coarse_run_executes_no_module_outside_its_key(law: str) -> None:
    """What ran is asked of the interpreter: every function of ours that was called is in a file of the key."""
    job = Job(track="T4", window="short_train", law=law, counts=(3,) if law == CLAIRVOYANT else ())
    called: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.add(frame.f_code.co_filename)

    track = replace(TRACK, windows=(("short_train", Window(0.0, 300.0)),))
    simulate(track, job)  # what is imported late is imported now
    sys.setprofile(note)
    try:
        simulate(track, job)
    finally:
        sys.setprofile(None)
    rooms = tuple(str(path.parents[1]) for path in map(Path, (sluice_sim.__file__, sluice_engine.__file__)))
    ours = {Path(name) for name in called if name.startswith(rooms)}
    assert len(ours) > 20
    assert ours <= set(sources(law, "coarse"))


def test_the_initial_count_is_no_part_of_the_key_of_laws_that_set_their_own() -> None:
    later = replace(TRACK, begin=TRACK.begin + 1, words="other words")
    for law, same in (("kpa", False), (STATIC, True), (CLAIRVOYANT, True)):
        job = Job(track="T4", window="test", law=law, setting=None if law == "kpa" else 4.0)
        assert (key_of(TRACK, job) == key_of(later, job)) == same


def test_a_piece_depends_on_its_trace_and_on_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def keys(changed: str) -> list[str]:
        folder = tmp_path / changed
        folder.mkdir()
        for path in FOLDER.glob("*.gz"):
            (folder / path.name).write_bytes(path.read_bytes() + (b"more" if path.name.startswith(changed) else b""))
        monkeypatch.setattr(store_module, "DATA", folder)
        return [key_of(read_track(name), Job(track=name, window="test", law="kpa")) for name in ("T2", "T3")]

    (before_2, before_3), trace = keys("nothing"), read_track("T3").load.trace
    assert read_track("T2").load.trace != trace
    after_2, after_3 = keys(trace)
    assert (after_2, after_3 != before_3) == (before_2, True)
    assert keys("profile_")[0] != before_2

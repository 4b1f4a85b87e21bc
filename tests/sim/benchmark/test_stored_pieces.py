"""Stored pieces: measured once, lost by no interruption, and valid for exactly the code and data behind their run."""

import subprocess
import sys
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
from sluice_sim.benchmark.run.job import CLAIRVOYANT, STATIC, Job, simulate
from sluice_sim.benchmark.run.runner import Runner
from sluice_sim.benchmark.run.sources import sources
from sluice_sim.benchmark.run.store import Store, key_of
from sluice_sim.benchmark.run.tasks import Task, WorkBoundTask, key, measure
from sluice_sim.benchmark.search.clairvoyant import Plan
from sluice_sim.benchmark.track import Window, WindowName, read_track
from sluice_sim.cluster.scenario import MODES, Mode
from sluice_sim.data import FOLDER

TRACK = read_track("T4")


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


def test_keep_removes_the_pieces_of_older_code_and_no_other_parts_of_the_same_code(tmp_path: Path) -> None:
    store = Store(tmp_path / "pieces.jsonl")
    store.put("a-old", "one", {"x": 1})
    store.put("a-new", "one", {"x": 2})
    store.put("b-new", "ablation", {"x": 3})
    store.keep(["a-new"])
    again = Store(store.path)
    assert ("a-old" in again, again["a-new"], again["b-new"]) == (False, {"x": 2}, {"x": 3})
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

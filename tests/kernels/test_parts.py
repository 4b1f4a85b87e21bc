"""The parts of `make gpu`: the next run after a failed one, and those with the engine find what they look for."""

import os
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from bench import __main__ as command
from bench import correctness, parts, peers
from bench.ceilings import Ceilings
from bench.progress import Progress
from bench.report import Result, write
from bench.serving import aborts, equality, idle, loads, models
from bench.serving.drive import Text, started, submit
from bench.speed import Sizes
from bench.speed import Work as Measured

from sluice_engine.backend.cuda.backend import CudaBackend
from sluice_engine.backend.cuda.device_queue import HostQueue, Work
from sluice_engine.backend.cuda.memory import HostShare

CEILINGS = Ceilings(4.3e12, 788e12)  # bytes and flops per second, as measured on an H200


BLOCKS = "import threading; threading.Event().wait()"  # never set
ENDS = """
import json, pathlib, sys
pathlib.Path(sys.argv[1]).write_text(json.dumps({"results": [], "done": ["second"], "ceilings": None}))
"""


def failing() -> None:
    raise RuntimeError("this part fails")


def test_a_part_that_fails_is_not_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [*parts.PARTS, parts.BARS] == [*_run(tmp_path)._calls()]
    assert [name.split()[0] for name in parts.PARTS] == ["1", "2", "3", "4", "5", "6", "7"]
    ran: list[str] = []
    monkeypatch.setattr(parts.Run, "_calls", lambda run: {"first": failing, "second": lambda: ran.append("second")})
    assert not _run(tmp_path).part("first")
    assert _run(tmp_path).part("second")
    assert ran == ["second"]
    shown = capsys.readouterr().out
    assert "first: FAILED" in shown
    assert "second: done" in shown
    assert _run(tmp_path).progress.failed(("first", "second")) == ["first"]


def rehearse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of a run on the CPU."""
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    return command.main(["--device", "cpu", "--small", "--results", str(tmp_path)])


def test_the_next_parts_run_after_one_whose_process_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(parts, "PARTS", ("lost", "1 ceilings"))  # its process does not know the first one
    assert rehearse(tmp_path, monkeypatch) == 1
    shown = capfd.readouterr()
    assert "KeyError: 'lost'" in shown.err
    assert "1 ceilings: done" in shown.out
    assert "bars: done" in shown.out
    assert "failed: lost\n" in shown.out


def test_a_part_that_hangs_is_cut_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    programs, limits, ends_within = {"first": BLOCKS, "second": ENDS}, list[float](), command._ends_within

    def within(seconds: float, line: list[str]) -> bool:
        limits.append(seconds)
        return ends_within(0.1 if BLOCKS in line else seconds, line)

    def line(arguments: list[str], part: str) -> list[str]:
        return [sys.executable, "-c", programs[part], str(Path(arguments[-1]) / parts.PROGRESS)]

    monkeypatch.setattr(parts, "PARTS", tuple(programs))
    monkeypatch.setattr(command, "_ends_within", within)
    monkeypatch.setattr(command, "_command", line)
    assert rehearse(tmp_path, monkeypatch) == 1
    shown = capfd.readouterr().out
    assert "first: FAILED, cut after 240 s" in shown
    assert "failed: first\n" in shown
    assert limits == [command.PART_SECONDS] * 2


def test_a_run_out_of_time_starts_no_further_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ticks = iter([0.0, 0.0, 400.0, 530.0, 530.0, 530.0])
    limits: list[float] = []

    def cut(seconds: float, line: list[str]) -> bool:
        limits.append(seconds)
        return False

    monkeypatch.setattr(parts, "PARTS", ("first", "second", "third"))
    monkeypatch.setattr(command, "_ends_within", cut)
    monkeypatch.setattr(command, "now", lambda: next(ticks))
    assert rehearse(tmp_path, monkeypatch) == 1
    shown = capfd.readouterr().out
    assert limits == [240.0, 120.0]
    assert "second: FAILED, cut after 120 s" in shown
    assert "third: FAILED, no time is left" in shown
    assert "530 s in all; failed: first, second, third\n" in shown


def test_what_one_process_found_is_read_by_the_next(tmp_path: Path) -> None:
    found = Progress([Result("a", "1 × 2", 1e-6, 1, 1, 0.5)], ["1 ceilings"], CEILINGS)
    found.save(tmp_path / parts.PROGRESS)
    assert _run(tmp_path).progress == found
    assert _run(tmp_path)._measured == CEILINGS


def _run(folder: Path) -> parts.Run:
    return parts.Run("cpu", folder, folder, small=True)


def test_a_part_without_the_engines_packages_fails_with_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(parts, "NEEDED", ("no_such_package",))
    assert not any(_run(tmp_path).part(name) for name in parts.PARTS[3:])
    assert capsys.readouterr().err.count("not installed: no_such_package") == 4


def test_processes_that_share_the_cases_run_each_of_them_once() -> None:
    shares = [correctness.share_of(index) for index in range(correctness.SHARES)]
    assert sorted(case for share in shares for case in share) == sorted(correctness.cases(small=False))
    assert {len(share) for share in shares} <= {len(shares[0]), len(shares[0]) - 1}


def test_cases_whose_process_is_lost_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "false")
    outcomes = correctness._in_a_process(0, "cpu")
    assert list(outcomes) == correctness.share_of(0)
    assert set(outcomes.values()) == {"not run: its process ended with exit code 1: "}


def test_an_error_of_many_lines_is_one_line_of_a_share(monkeypatch: pytest.MonkeyPatch) -> None:
    class Long(Exception):
        def __repr__(self) -> str:
            return "two\nlines"

    def compare(case: object, device: str) -> float:
        raise Long

    monkeypatch.setattr(correctness, "KERNELS", {"k": ({"a": None, "b": None}, {}, compare)})
    assert [outcome for _, outcome in correctness._outcomes([("k", "a"), ("k", "b")], "cpu")] == ["two lines"] * 2


def test_the_floor_of_an_8b_step_at_128_sequences_is_that_of_weights_and_cache() -> None:
    moved, _, floor = loads.floor_of(models.EIGHT_BILLION, 128, 128, 128 * 1024, CEILINGS)
    assert moved == pytest.approx(15.0e9 + 17.2e9, rel=0.01)
    assert floor == pytest.approx(7.5e-3, rel=0.01)
    *_, many = loads.floor_of(models.EIGHT_BILLION, 256, 256, 256 * 1024, CEILINGS)
    assert many == pytest.approx(12.9e-3, rel=0.01)  # its products are bound by computing


def test_a_text_that_differs_is_named_unless_its_tokens_are_almost_equally_likely() -> None:
    want = {"a": Text([5, 6], [((5, -0.1), (7, -2.0)), ((6, -0.7), (8, -0.7001))])}
    assert equality.greedy("x", want, {"a": Text([5, 6])}) == []
    assert equality.greedy("x", want, {"a": Text([5, 8])}) == []
    (fault,) = equality.greedy("x", want, {"a": Text([7, 6])})
    assert fault == "x: request a differs at token 0, whose logprobs are 1.9000 apart"
    (fault,) = equality.greedy("x", want, {"a": Text([9, 6])})
    assert "inf apart" in fault
    assert equality.drawn("x", want, {"a": Text([5, 8])}) == ["x: requests a differ"]
    with pytest.raises(equality.Different, match="has 1 tokens, expected 2"):
        equality.greedy("x", want, {"a": Text([5])})


def test_a_request_that_an_abort_forgets_is_a_leak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    abort = aborts.abort

    def forgetful(engine: object, count: int, seed: int) -> None:
        abort(engine, count, seed)  # type: ignore[arg-type]
        submit(engine, f"left-{seed}", [5, 6], 4)  # type: ignore[arg-type]

    monkeypatch.setattr(aborts, "SMALL_ABORTS", 10)
    monkeypatch.setattr(aborts, "abort", forgetful)
    with pytest.raises(aborts.Leak, match="0 blocks and 1 requests are left"):
        aborts.check("cpu", tmp_path, small=True)


def test_decode_steps_of_one_batch_size_are_found_among_the_others(tmp_path: Path) -> None:
    models.save_small(tmp_path)
    engine = started(tmp_path, models.on_device("cpu"), kv_size=4 << 20, max_num_seqs=4)
    steps = loads.decode_steps(engine, loads.SMALL, 4)
    assert steps.seconds > 0
    assert steps.waited is None  # a CPU has no clock of its own
    assert 0.8 < steps.context / (4 * loads.SMALL.context) < 1.5
    assert not engine.scheduler.requests


class Moment(NamedTuple):
    at: float

    def since(self, earlier: "Moment") -> float:
        return self.at - earlier.at


class SteppingQueue(HostQueue):
    """A device on whose clock each work takes a second; a quarter of one passes between works."""

    now = 0.0

    def put(self, work: Work) -> None:
        self.now += 1.0
        work()

    def stamp(self) -> Moment:  # type: ignore[override]
        self.now += 0.125
        return Moment(self.now)


def test_the_time_in_which_a_device_waits_is_read_from_its_clock(tmp_path: Path) -> None:
    spans = [(Moment(begin), Moment(begin + 1.0)) for begin in (3.0, 4.25, 5.5)]
    assert idle.idle_share(spans) == pytest.approx(0.5 / 3.5)
    models.save_small(tmp_path)
    queue = SteppingQueue()
    backend = CudaBackend(torch.device("cpu"), HostShare(1), queue)
    engine = started(tmp_path, backend, kv_size=4 << 20, max_num_seqs=4)
    waited = loads.decode_steps(engine, loads.SMALL, 4).waited
    assert waited is not None and 0.05 < waited < 0.25
    assert engine.runner._queue is queue  # type: ignore[union-attr]


def test_a_peer_that_fails_is_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def works(sizes: Sizes, device: str):  # type: ignore[no-untyped-def]
        yield Measured("theirs", "1", lambda: None, 8)
        raise OSError("no driver")

    monkeypatch.setattr(peers, "PEERS", {"no_such_package": works, "json": works})
    assert [one.what for one in peers.measure("cpu", CEILINGS, small=True)] == ["theirs"]
    shown = capsys.readouterr().out
    assert "no_such_package: not installed" in shown
    assert "json: left out after OSError('no driver')" in shown


def test_results_are_appended_with_versions_and_the_commit(tmp_path: Path) -> None:
    results = [Result(what, "1 × 2", 1e-6, 1, 1, fraction) for what, fraction in (("a", 0.5), ("b", 0.0))]
    write(results[:1], 0, CEILINGS, tmp_path)
    write(results, 1, CEILINGS, tmp_path)
    (table,), (summary,) = tmp_path.glob("*.csv"), tmp_path.glob("*.md")
    head, *lines = table.read_text().splitlines()
    assert head.startswith("device,commit,code,torch,triton,python,copy_gb_s,matmul_tflop_s,what,shape")
    assert [line.split(",")[8] for line in lines] == ["a", "b"]
    assert f",{torch.__version__}," in lines[0]
    assert "| a | 1 × 2 | 1 | 50.0% |" in summary.read_text()
    assert "| b | 1 × 2 | 1 |  |" in summary.read_text()

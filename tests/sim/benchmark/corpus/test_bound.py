"""The bound of what a law without evidence can reach, on runs whose misses are known in closed form."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sluice_sim.benchmark.corpus import __main__ as command
from sluice_sim.benchmark.corpus.bound import Bound, bound_plan, sentences
from sluice_sim.benchmark.corpus.figures import to_dict
from sluice_sim.benchmark.corpus.laws import (
    CONSTANT,
    LATE_RISE,
    LATE_START,
    SCHEDULE,
    UNFORESEEN,
    late_schedule,
    sudden_rise,
)
from sluice_sim.benchmark.corpus.load import read_loads
from sluice_sim.benchmark.corpus.tasks import CORPUS, LawRun
from tests.sim.benchmark.corpus.figures import figures

LOADS = read_loads()


def answer(task: LawRun) -> dict[str, Any]:
    """Two replicas are enough; each second of delay loses 0.02 % of the requests, half of it with more than two."""
    if task.law == CONSTANT:
        attained, hours = (0.8 if task.setting == 1.0 else 0.9992), 2.0 * (task.setting or 1.0)
    else:
        counts = task.counts or (2,)
        attained, hours = 0.995, 2.0 * sum(counts) / len(counts)
        if task.setting is not None:
            attained -= (0.0001 if max(counts) > 2 else 0.0002) * task.setting
        if task.law == LATE_RISE:
            attained -= 0.004
    return to_dict(figures(attained, hours))


def bound_of(name: str, answers: Callable[[LawRun], dict[str, Any]] = answer) -> tuple[Bound | None, list[LawRun]]:
    plan, asked = bound_plan(LOADS[name], "sluice"), list[LawRun]()
    sent = None
    while True:
        try:
            tasks = next(plan) if sent is None else plan.send(sent)
        except StopIteration as end:
            return end.value, asked
        asked += tasks
        sent = [answers(task) for task in tasks]


def test_a_late_start_keeps_the_fewest_replicas_until_its_first_order() -> None:
    late = late_schedule(LATE_START, (3, 4, 2), LOADS["on-off-3"], 30.0)  # cold start 60 s
    assert [late.count(now) for now in (0.0, 29.0, 30.0, 240.0, 300.0, 600.0)] == [1, 1, 3, 4, 4, 2]


def test_an_unforeseen_piece_is_ordered_late_and_never_ahead() -> None:
    late = late_schedule(UNFORESEEN, (3, 4, 2), LOADS["on-off-3"], 30.0)
    assert [late.count(now) for now in (29.0, 30.0, 300.0, 329.0, 330.0, 629.0, 630.0)] == [1, 3, 3, 3, 4, 4, 2]


def test_a_sudden_rise_is_answered_late_and_what_came_before_is_not() -> None:
    late = late_schedule(LATE_RISE, (1, 2, 2, 3, 9, 9), LOADS["flash-3"], 15.0)  # it rises at 1400 s
    assert [late.count(now) for now in (0.0, 300.0, 899.0, 1200.0, 1414.0, 1415.0)] == [1, 2, 3, 3, 3, 9]


def test_only_generated_loads_that_double_within_a_minute_rise_suddenly() -> None:
    assert {name: at for name, one in LOADS.items() if (at := sudden_rise(one)) is not None} == {
        "step-3": 899.0,
        "step-10": 999.0,
        "flash-3": 1400.0,
        "flash-10": 1200.0,
        "tenant-10": 800.0,
    }


def test_more_replicas_are_tried_only_where_the_late_schedule_keeps_too_little() -> None:
    found, asked = bound_of("on-off-3")
    assert found is not None
    assert {delay: round(one.attainment, 4) for delay, one in found.late.items()} == {15: 0.992, 30: 0.989, 60: 0.983}
    assert list(found.ample) == [60.0] and not found.rise
    assert max(found.ample[60.0].attainment, 0.983) == found.possible(60.0)
    assert sum(task.law == SCHEDULE and task.setting is not None for task in asked) == 0


def test_a_sudden_rise_bounds_what_is_possible() -> None:
    found, _ = bound_of("flash-3")
    assert found is not None
    assert all(found.possible(delay) == found.rise[delay].attainment for delay in found.rise)


def test_a_load_out_of_reach_has_no_bound() -> None:
    def poor(task: LawRun) -> dict[str, Any]:
        return answer(task) | to_dict(figures(0.95, 4.0))

    assert bound_of("on-off-3", poor)[0] is None


def test_the_sentences_count_the_loads() -> None:
    found = [one for name in ("on-off-3", "flash-3") if (one := bound_of(name)[0]) is not None]
    first, at_15, _, at_60, unforeseen = sentences(found)
    assert "On 2 loads" in first
    assert "98.5% on 2 of them" in at_15 and at_15.endswith("on 2.")
    assert "98.5% on 0 of them" in at_60
    assert unforeseen.endswith("has begun: 2. Sluice: 2.")


def test_the_command_writes_the_bound_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "CORPUS", replace(CORPUS, measure=answer))
    options = ["--bound", "--loads", "on-off-3", "--workers", "0", "--out", str(tmp_path)]
    ran = CliRunner().invoke(command.app, options)
    assert ran.exit_code == 0, ran.output
    text, pieces = (tmp_path / "bound.txt").read_text(encoding="utf-8"), (tmp_path / "pieces.jsonl").read_text()
    assert "on-off-3" in text and "Sluice: 1." in text
    assert any("late-start by 15 s" in json.loads(line)["about"] for line in pieces.splitlines())
    CliRunner().invoke(command.app, options)
    assert (tmp_path / "pieces.jsonl").read_text() == pieces

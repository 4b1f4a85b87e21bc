"""The output of the score: table, JSON, acceptance criteria and plots of given results, without a simulation."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from sluice_sim.benchmark.__main__ import app
from sluice_sim.benchmark.report.acceptance import acceptance_criteria
from sluice_sim.benchmark.report.plots import draw
from sluice_sim.benchmark.report.table import TrackScore, as_json, laws_table, ratio
from sluice_sim.benchmark.run.plan import LawScore
from sluice_sim.benchmark.search.clairvoyant import Clairvoyant
from sluice_sim.benchmark.search.knob import Trial
from sluice_sim.benchmark.track import read_track


def found(attainment: float, gpu_hours: float) -> dict[str, Any]:
    return {
        "attainment": attainment, "gpu_hours": gpu_hours, "worst": 0.9, "actions": 3.0, "flips": 1.0, "hit_ratio": 0.0,
        "replicas_mean": 5.5, "seconds": 600.0, "cpu_seconds": 1.0, "series": [[3.0, 2.0, 1.0], [4.0, 2.5, 0.99]],
    }  # fmt: skip


def law_score(law: str, attainment: float, gpu_hours: float) -> LawScore:
    curve = (Trial(1.0, found(attainment, gpu_hours)), Trial(2.0, found(attainment + 0.004, gpu_hours * 1.2)))
    cost = gpu_hours if attainment >= 0.99 else None
    return LawScore(law, "T4", found(attainment, gpu_hours), curve[0], curve, curve, cost, cost)


def score() -> TrackScore:
    made = TrackScore(read_track("T4"), Clairvoyant("T4", (3, 4), found(0.991, 4.0), 2.5), (8, found(0.995, 5.5)))
    made.laws = [law_score("sluice", 0.992, 4.4), law_score("kpa", 0.991, 5.0), law_score("hpa-queue", 0.8, 3.0)]
    return made


def test_the_table_lists_the_cheapest_law_first_and_marks_failures() -> None:
    console = Console(width=160, record=True, quiet=False, file=None, force_terminal=False)
    with console.capture() as shown:
        console.print(laws_table(score()))
    lines = shown.get().splitlines()
    rows = [line for line in lines if line.startswith("│")]
    assert [row.split()[1] for row in rows] == ["sluice", "kpa", "hpa-queue"]
    assert "1.100" in rows[0] and "fails" in rows[2]
    assert any("1.60 of the work bound" in line for line in lines)


def test_the_criteria_follow_from_the_figures() -> None:
    judged = acceptance_criteria([score()])
    assert all(reached for sentence, reached in judged.items())
    better = score()
    better.laws.append(law_score("kpa", 0.995, 3.9))
    assert not acceptance_criteria([better])["T4: nothing beats the clairvoyant"]
    assert not all(reached for sentence, reached in acceptance_criteria([better]).items() if "cheapest" in sentence)


def test_any_cost_below_the_clairvoyants_fails_a_criterion() -> None:
    untuned, stormy, constant = score(), score(), score()
    untuned.laws.append(replace(law_score("kpa", 0.995, 5.0), default_gpu_hours=3.9))
    stormy.robust = {"sluice": {"seed 1": 1.1, "seed 2": None}, "kpa": {"seed 1": 0.98}}
    constant.static = (5, found(0.99, 3.9))
    for one in (untuned, stormy, constant):
        assert not acceptance_criteria([one])["T4: nothing beats the clairvoyant"]


def test_without_a_clairvoyant_laws_are_compared_by_what_they_cost() -> None:
    made = score()
    made.clairvoyant = None
    judged = acceptance_criteria([made])
    (row,) = [sentence for sentence in judged if "cheapest" in sentence]
    assert judged[row]
    assert "best tuned peer 5.00 GPU-hours, ours 4.40 GPU-hours" in row
    assert not any("clairvoyant" in sentence for sentence in judged)


def test_a_clairvoyant_that_misses_the_target_fails_a_criterion() -> None:
    lacking, stormy = score(), score()
    lacking.clairvoyant = Clairvoyant("T4", (3, 4), found(0.985, 3.0), 2.5)
    stormy.variant_attainment = {"cold start 120 s": 0.992, "cold start 300 s": 0.9871}
    for one, said in ((lacking, "98.50%, plain"), (stormy, "98.71%, cold start 300 s")):
        (row,) = [sentence for sentence in acceptance_criteria([one]) if "the clairvoyant itself" in sentence]
        assert not acceptance_criteria([one])[row]
        assert said in row


def test_the_json_is_plain_and_without_series() -> None:
    value = json.loads(json.dumps(as_json([score()], "make bench-control")))
    law = value["tracks"]["T4"]["laws"]["sluice"]
    assert law["r99"] == pytest.approx(1.1)
    assert "series" not in law["tuned"]
    assert value["tracks"]["T4"]["laws"]["hpa-queue"]["r99"] is None
    assert ratio(None, score()) is None


def test_all_plots_with_data_are_drawn(tmp_path: Path) -> None:
    made = score()
    made.robust = {"sluice": {"plain": 1.1, "seed 1": None}, "kpa": {"plain": 1.2, "seed 1": 1.3}}
    written = draw([made], tmp_path)
    assert [path.name for path in written] == ["frontier.png", "r99.png", "dials-T4.png", "robust.png"]
    assert all(path.stat().st_size > 10_000 for path in written)


@pytest.mark.parametrize(
    ("options", "said"), [(["--tracks", "T9"], "no track is called T9"), (["--laws", "hpb"], "'hpb' is no law")]
)
def test_unknown_tracks_and_laws_are_reported_before_anything_runs(options: list[str], said: str) -> None:
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())


def capped(**runs: tuple[float, float]) -> dict[str, bool]:
    """The bars of the track whose overload comes and goes, from (share of good requests, GPU-hours) by law."""
    made = TrackScore(read_track("T5b"))
    names = {"alone": "admission-only", "alone_3": "admission-only, 3 of 4 replicas", "replicas": "replicas-only"}
    made.overload = {names.get(key, key): found(*figures) for key, figures in runs.items()}
    return acceptance_criteria([made])


def test_both_dials_are_compared_with_each_alone_at_equal_gpu_hours() -> None:
    """Three replicas serve 80 % for 3 GPU-hours and four 96 % for 4: what 3.5 buy is in the middle."""
    other_digests = {"alone": (0.96, 4.0), "alone_3": (0.80, 3.0), "replicas": (0.5, 3.5)}
    ((sentence, beaten),) = capped(sluice=(0.9, 3.5), **other_digests).items()
    assert beaten
    assert "ours 90.0%, admission-only 88.0%, replicas-only 50.0%" in sentence
    assert not all(capped(sluice=(0.87, 3.5), **other_digests).values())
    assert not all(capped(sluice=(0.9, 4.1), **other_digests).values())  # who pays as much must serve as many
    assert not all(capped(sluice=(0.9, 3.5), **(other_digests | {"replicas": (0.91, 3.5)})).values())


def test_a_dial_that_costs_more_must_serve_less() -> None:
    other_digests = {"alone": (0.96, 4.0), "alone_3": (0.80, 3.0)}
    assert all(capped(sluice=(0.9, 3.5), replicas=(0.7, 3.6), **other_digests).values())
    assert not all(capped(sluice=(0.9, 3.5), replicas=(0.95, 3.6), **other_digests).values())


def test_a_dial_that_was_not_measured_fails_the_joint_criterion() -> None:
    assert not all(capped(sluice=(0.9, 3.5), alone=(0.8, 3.5)).values())

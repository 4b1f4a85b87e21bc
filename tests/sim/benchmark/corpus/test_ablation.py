"""The effect of a variant of the law over families, and over all but the family that the rule serves."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from sluice_sim.benchmark.corpus import __main__ as command
from sluice_sim.benchmark.corpus.__main__ import app
from sluice_sim.benchmark.corpus.ablation import (
    Loss,
    ablation_plan,
    ablation_table,
    effect,
    sensitivity_table,
    served_family,
)
from sluice_sim.benchmark.corpus.figures import to_dict
from sluice_sim.benchmark.corpus.tasks import CORPUS
from sluice_sim.benchmark.corpus.variants import VARIANTS, Variant
from tests.sim.benchmark.corpus.figures import figures, load

OWN = figures(0.99, 10.0)


def losses(*rows: tuple[str, float, float]) -> list[Loss]:
    """(load, GPU-hours over the law's, points lost)."""
    return [
        Loss(load=load(name), own=OWN, variant=figures(0.99 - points / 100.0, 10.0 * cost))
        for name, cost, points in rows
    ]


@pytest.mark.parametrize(
    ("cost", "points", "pays"),
    [
        (1.01, 0.0, True),
        (1.002, 0.0, False),
        (1.0, 0.2, True),
        (1.0, 0.05, False),
        (1.01, -0.5, False),
        (0.9, 0.5, False),
    ],
)
def test_a_rule_pays_if_the_law_without_it_costs_or_misses_more(cost: float, points: float, pays: bool) -> None:
    assert effect(losses(("conv-1", cost, points))).pays == pays


def test_every_family_counts_the_same_however_many_loads_it_has() -> None:
    found = effect(losses(("conv-1", 1.0, 0.0), ("conv-3", 1.0, 0.0), ("conv-10", 1.0, 0.0), ("kv-1", 1.0, 1.0)))
    assert found.points == pytest.approx(0.005)


def test_a_rule_that_serves_one_family_alone_does_not_pay_elsewhere() -> None:
    found = losses(("conv-1", 1.0, 0.0), ("kv-1", 1.2, 0.0), ("tail-1", 1.0, 0.0))
    assert effect(found).pays
    assert served_family(found) == "kv-bound"
    assert text_of({"no-memory": found}).split()[-2:] == ["yes", "no"]


def test_a_rule_that_buys_attainment_for_gpu_hours_is_a_trade_in_the_family_where_it_keeps_most() -> None:
    found = losses(("conv-1", 0.5, 7.0), ("kv-1", 1.0, 0.0))
    assert served_family(found) == found[0].load.family
    assert text_of({"no-memory": found}).split()[-2:] == ["trade", "no"]


def test_the_plan_pairs_the_law_with_the_variant_on_every_load() -> None:
    plan = ablation_plan([load("conv-1"), load("kv-1")], "sluice", "other")
    tasks = next(plan)
    assert [(task.load, task.law) for task in tasks] == [
        ("conv-1", "sluice"), ("conv-1", "other"), ("kv-1", "sluice"), ("kv-1", "other"),
    ]  # fmt: skip
    with pytest.raises(StopIteration) as end:
        plan.send([to_dict(figures(0.99, hours)) for hours in (1.0, 2.0, 3.0, 4.0)])
    assert [(one.own.gpu_hours, one.variant.gpu_hours) for one in end.value.value] == [(1.0, 2.0), (3.0, 4.0)]


def test_the_command_compares_variants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "RULES", {"no-memory": VARIANTS["no-memory"]})
    monkeypatch.setattr(command, "CONSTANTS", {f"rise_seconds-{word}": Variant() for word in ("half", "double")})
    measured = replace(CORPUS, measure=lambda task: to_dict(figures(0.99, 2.0 if task.law == "sluice" else 3.0)))
    monkeypatch.setattr(command, "CORPUS", measured)
    options = ["--loads", "poisson-1", "--workers", "0", "--out", str(tmp_path), "--variants"]
    for group, file in (("rules", "ablation.txt"), ("constants", "sensitivity.txt")):
        monkeypatch.setattr(sys, "argv", ["corpus", "--loads", "poisson-1"])
        ran = CliRunner().invoke(app, [*options, group])
        text = (tmp_path / file).read_text(encoding="utf-8")
        assert ran.exit_code == 0 and text.startswith("python -m sluice_sim.benchmark.corpus --loads poisson-1\n")
        assert text.split("\n\n", 1)[1] in ran.stdout and "+50.00%" in text
    (tmp_path / "sensitivity.txt").unlink()
    one = CliRunner().invoke(app, [*options, "rise_seconds-double"])
    assert one.exit_code == 0 and "rise_seconds" in one.stdout
    assert not (tmp_path / "sensitivity.txt").exists(), "not all constants were compared"
    wrong = CliRunner().invoke(app, [*options, "nosuch"], env={"COLUMNS": "400", "TERM": "dumb"})
    assert wrong.exit_code == 2 and "no variant is called nosuch" in wrong.output


def test_a_constant_has_one_row_with_both_values() -> None:
    memory = losses(("conv-1", 1.05, -0.1))
    found = {
        "burst_memory_seconds-double": memory,
        "growth_most-half": losses(("conv-1", 1.02, 0.1)),
        "significance-double": losses(("conv-1", 1.0, -0.2)),
    }
    console = Console(width=200)
    with console.capture() as captured:
        console.print(sensitivity_table(found))
    rows = [line.split() for line in captured.get().splitlines() if "_" in line or "significance" in line]
    assert rows == [
        ["burst_memory_seconds", "900", "450", "–", "–", "1800", "+5.00%", "+0.100"],
        ["growth_most", "2", "1.5", "+2.00%", "-0.100", "3", "–", "–"],
        ["significance", "2", "1", "–", "–", "4", "+0.00%", "+0.200"],
    ]


def text_of(found: dict[str, Sequence[Loss]] | dict[str, list[Loss]]) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(ablation_table(found))
    return captured.get().strip()

"""`sluice simulate` with several specs under one load, and with another replica range than the spec's."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from sluice.cli import app
from sluice_sim.cli.compare import Row, specs_table
from sluice_sim.cluster.fleet import Fleet
from sluice_sim.cluster.scenario import Settings
from sluice_sim.policies.registry import LAWS
from sluice_sim.results.summary import Summary, summarise
from sluice_sim.traces import poisson
from tests.operator.autoscaler.fleet import MODEL, spec
from tests.sim.cli.test_simulate_command import PROFILE, YAML

LOAD = ("--rate", "3", "--seconds", "60", "--prompt-tokens", "60", "--output-tokens", "40", "--profile", PROFILE,
        "--kv-tokens", "32000", "--cold-start", "10", "--mode", "coarse")  # fmt: skip


def files(folder: Path) -> tuple[Path, Path]:
    """A spec with one to three replicas, and one with three to five and another ITL target."""
    first, second = folder / "a.yaml", folder / "b.yaml"
    first.write_text(YAML, encoding="utf-8")
    text = YAML.replace("minReplicas: 1, maxReplicas: 3", "minReplicas: 3, maxReplicas: 5")
    second.write_text(text.replace("itlMilliseconds: 100", "itlMilliseconds: 120"), encoding="utf-8")
    return first, second


def simulate(*options: object, columns: int = 80) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["simulate", *map(str, options), *LOAD], env={"COLUMNS": str(columns)})
    return result.exit_code, result.stdout, result.stderr


def rows(out: str) -> list[list[str]]:
    """The words of the lines of the table, below its headings."""
    lines = out[: out.index("coarse steps")].splitlines()
    return [words for line in lines[lines.index(next(line for line in lines if "─" in line)) + 1 :]
            if (words := line.split())]  # fmt: skip


@pytest.mark.parametrize("beside", [True, False])
def test_each_spec_has_a_row_and_a_sentence_with_its_own_targets(tmp_path: Path, beside: bool) -> None:
    """FILE and --spec together, or --spec alone."""
    first, second = files(tmp_path)
    arguments = (first, "--spec", second) if beside else ("--spec", f"{first}, {second}")
    code, out, _ = simulate(*arguments)
    assert code == 0 and out.startswith("Specs under the same load")
    found = rows(out)
    assert [words[0] for words in found] == ["a.yaml", "b.yaml"]
    assert all(len(words) == 8 for words in found)
    sentences = out.splitlines()[-2:]
    assert sentences[0].startswith("a.yaml: ") and "ITL 100 ms" in sentences[0]
    assert sentences[1].startswith("b.yaml: ") and "ITL 120 ms" in sentences[1]
    assert out.count("decisions every 5 s; seed 0") == 1  # a note that holds for all is printed once


def test_a_row_of_a_comparison_has_the_figures_of_the_spec_alone(tmp_path: Path) -> None:
    first, second = files(tmp_path)
    together = json.loads(simulate(first, "--spec", second, "--json")[1])["specs"]
    assert list(together) == ["a.yaml", "b.yaml"]
    for file in (first, second):
        alone = json.loads(simulate(file, "--json")[1])
        assert alone == json.loads(simulate("--spec", file, "--json")[1]) == together[file.name]


def test_other_laws_run_under_each_spec(tmp_path: Path) -> None:
    first, second = files(tmp_path)
    code, out, _ = simulate(first, "--spec", second, "--compare", "kpa")
    assert code == 0
    assert [words[0] for words in rows(out)] == ["a.yaml", "sluice", "kpa", "b.yaml", "sluice", "kpa"]
    assert out.count("kpa     target 100 requests") == 1
    value = json.loads(simulate(first, "--spec", second, "--compare", "kpa", "--json")[1])
    assert {name: set(one["compared"]) for name, one in value["specs"].items()} == {
        "a.yaml": {"sluice", "kpa"},
        "b.yaml": {"sluice", "kpa"},
    }


def test_files_of_the_same_name_are_named_by_their_path(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        files(tmp_path / name)
    code, out, _ = simulate(tmp_path / "one/a.yaml", "--spec", tmp_path / "two/a.yaml", "--json", columns=300)
    assert code == 0
    assert list(json.loads(out)["specs"]) == [str(tmp_path / "one/a.yaml"), str(tmp_path / "two/a.yaml")]


def test_the_picture_of_each_spec_has_its_name(tmp_path: Path) -> None:
    first, second = files(tmp_path)
    code, _, err = simulate(first, "--spec", second, "--plot", tmp_path / "run.png", columns=300)
    assert code == 0
    for name in ("run-a.png", "run-b.png"):
        assert name in err and (tmp_path / name).read_bytes()[:4] == b"\x89PNG"
    assert not (tmp_path / "run.png").exists()


def test_a_warning_names_the_spec_that_it_is_about(tmp_path: Path) -> None:
    first, second = files(tmp_path)
    first.write_text(YAML.replace('chat"}', 'chat", maxModelLength: 60}'), encoding="utf-8")
    _, out, _ = simulate(first, "--spec", second, columns=300)
    assert out.startswith("a.yaml: ") and "are longer than 59 tokens, all rejected" in out.splitlines()[0]


GOLDEN = """
Specs under the same load
                          SLO    worst  replicas          GPU-  moves  reversals
spec and law              met    5 min      mean  most   hours  per h      per h
────────────────────────────────────────────────────────────────────────────────
a.yaml
  sluice              100.00%  100.00%      1.25     3  12.500    7.0        3.0
  dynamo-throughput    91.00%   82.00%     10.00    12  99.125    0.0        0.0
a-spec-with-a-name-o
f-its-own.yaml
  sluice              100.00%  100.00%      1.25     3  12.500    7.0        3.0
  dynamo-throughput    91.00%   82.00%     10.00    12  99.125    0.0        0.0
coarse steps
"""


def summaries() -> tuple[Summary, Summary]:
    run = Fleet(spec(), Settings(MODEL, 32_000, mode="coarse")).run(poisson(1.0, 30.0, 20, 5, seed=0))
    one = replace(
        summarise(run), attainment=1.0, attainment_worst=1.0, replicas_mean=1.25, replicas_max=3, gpu_hours=12.5,
        actions_per_hour=7.0, flips_per_hour=3.0,
    )  # fmt: skip
    other = replace(
        one, attainment=0.91, attainment_worst=0.82, replicas_mean=10.0, replicas_max=12, gpu_hours=99.125,
        actions_per_hour=0.0, flips_per_hour=0.0,
    )  # fmt: skip
    return one, other


def test_the_table_of_specs_and_laws_is_80_columns_wide_and_folds_long_names() -> None:
    laws = (LAWS["sluice"].default(), LAWS["dynamo-throughput"].default())
    group = tuple(Row(law, summary) for law, summary in zip(laws, summaries(), strict=True))
    paper = StringIO()
    names = ("a.yaml", "a-spec-with-a-name-of-its-own.yaml")
    Console(file=paper, width=80).print(specs_table([(name, group) for name in names], "coarse steps"))
    assert [line.rstrip() for line in paper.getvalue().splitlines()] == GOLDEN.strip("\n").splitlines()


@pytest.mark.parametrize(
    ("options", "least", "most"),
    [((), 1, 3), (("--min-replicas", "2"), 2, 3), (("--min-replicas", "4", "--max-replicas", "4"), 4, 4)],
)
def test_the_replica_range_of_the_command_line_replaces_that_of_the_spec(
    tmp_path: Path, options: tuple[str, ...], least: int, most: int
) -> None:
    first, _ = files(tmp_path)
    summary = json.loads(simulate(first, *options, "--json")[1])["summary"]
    assert summary["replicas_min"] == least and summary["replicas_max"] <= most
    _, out, _ = simulate(first, *options)
    assert f"{least} – {most} (Auto)" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "Give a FILE with one LLMDeployment, or several: --spec a.yaml,b.yaml."),
        (("a.yaml", "--spec", "a.yaml"), "a.yaml is given twice: give each file once."),
        (("a.yaml", "--spec", "none.yaml"), "none.yaml: No such file or directory"),
        (
            ("a.yaml", "--min-replicas", "4"),
            "a.yaml with --min-replicas 4: spec.scaling.minReplicas must be less than or equal to",
        ),
        (
            ("a.yaml", "--min-replicas", "2000", "--max-replicas", "1"),
            "a.yaml with --min-replicas 2000 --max-replicas 1: spec.scaling.minReplicas must be",
        ),
    ],
)
def test_invalid_specs_are_reported_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], sentence: str
) -> None:
    files(tmp_path)
    monkeypatch.chdir(tmp_path)
    code, _, err = simulate(*arguments)
    assert code == 2 and sentence in err and len(err.strip().splitlines()) == 1

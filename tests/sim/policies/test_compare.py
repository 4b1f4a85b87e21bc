"""Comparison of laws on one trace: in the simulator, and in the command's output."""

from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from sluice.cli import app
from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.autoscaler.values import Decision, Observed
from sluice_sim.cli.compare import Row, comparison_table
from sluice_sim.cluster.fleet import Fleet
from sluice_sim.cluster.scenario import MODES, Mode, Settings
from sluice_sim.policies.policy import Knob, ask
from sluice_sim.policies.registry import LAWS
from sluice_sim.results.summary import Summary, summarise
from sluice_sim.traces import Arrival, poisson
from tests.operator.autoscaler.fleet import MODEL, spec
from tests.sim.cli.test_simulate_command import PROFILE, YAML

SETTINGS = Settings(MODEL, kv_tokens=32_000, interval=5.0, cold_start=10.0, mode="coarse")
SPEC = spec(scaling={"maxReplicas": 4})
NO_KNOB = Knob("none", 0.0, (0.0,))


def load() -> tuple[Arrival, ...]:
    """Half a replica's load for a minute, three replicas' for one."""
    parts = ((0, 60, 1.2), (60, 60, 8.0))
    return tuple(
        Arrival(start + one.at, one.prompt, one.output)
        for index, (start, seconds, rate) in enumerate(parts)
        for one in poisson(rate, seconds, 60, 40, seed=index)
    )


def under(name: str) -> Summary:
    return summarise(Fleet(SPEC, SETTINGS, LAWS[name].default()).run(load()))


@pytest.mark.parametrize("name", LAWS)
def test_every_law_serves_the_trace_within_its_bounds(name: str) -> None:
    summary = under(name)
    assert summary.requests == len(load())
    assert 1 <= summary.replicas_min <= summary.replicas_max <= 4
    assert summary.attainment > 0


def test_the_same_law_on_the_same_trace_gives_the_same_figures() -> None:
    assert under("llm-d-slo") == under("llm-d-slo")


def test_sluice_moves_replicas_and_limits_and_each_ablation_one_of_them() -> None:
    both, replicas, admission = (under(name) for name in ("sluice", "replicas-only", "admission-only"))
    assert both.replicas_max > 1 and replicas.replicas_max > 1
    assert (replicas.limit_min, replicas.limit_max) == (64, 64)
    assert (both.limit_min or 64) < 64
    assert admission.actions_per_hour == 0 and admission.replicas_max == 4


@dataclass(frozen=True, slots=True)
class Script:
    """A law that asks for what it was told, whatever it sees."""

    counts: tuple[tuple[float, int], ...]  # (from, replicas)
    name: str = "script"
    knob: Knob = NO_KNOB
    setting: float = 0.0
    admits: bool = False

    def initial(self) -> None:
        return None

    def decide(self, spec: LLMDeploymentSpec, observed: Observed, memory: None, now: float) -> tuple[Decision, None]:
        return ask(spec, observed, self.name, [count for at, count in self.counts if at <= now][-1], "told so."), memory


@pytest.mark.parametrize("mode", MODES)
def test_a_loading_replica_can_be_removed_without_effect_on_the_others(mode: Mode) -> None:
    settings = replace(SETTINGS, mode=mode, cold_start=30.0)
    run = Fleet(SPEC, settings, Script(((0.0, 3), (10.0, 1)))).run(load()[:80])
    assert run.failures == 0
    assert all(record.ended_at is not None for record in run.records)
    assert run.desired[-1][1] == 1


def simulate(folder: Path, *options: str, columns: int = 80) -> tuple[int, str, str]:
    file = folder / "chat.yaml"
    file.write_text(YAML, encoding="utf-8")
    usual = ("--rate", "2", "--seconds", "60", "--profile", PROFILE, "--kv-tokens", "32000")
    result = CliRunner().invoke(app, ["simulate", str(file), *usual, *options], env={"COLUMNS": str(columns)})
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("columns", [40, 80, 160])
def test_the_comparison_has_one_line_per_law_sluice_first_and_cuts_no_figure(tmp_path: Path, columns: int) -> None:
    asked = ["sluice", "kpa", "dynamo-throughput", "dynamo-load", "admission-only"]
    code, out, _ = simulate(tmp_path, "--mode", "coarse", "--compare", "kpa,dynamo,admission-only", columns=columns)
    assert code == 0
    table = out[out.index("Laws at their defaults, 1 – 3 replicas") :].splitlines()
    assert "…" not in "".join(table)
    assert max(map(len, table[:-2])) <= 80  # two sentences follow
    lines = [words for line in table if (words := line.split()) and words[0] in LAWS]
    figures, knobs = lines[: len(asked)], lines[len(asked) :]
    assert [words[0] for words in figures] == [words[0] for words in knobs] == asked
    for _, *values in figures:
        assert len(values) == 7 and all(value.endswith("%") for value in values[:2])
        assert all(float(value.rstrip("%")) >= 0 for value in values)
    assert " ".join(knobs[1]) == "kpa target 100 requests"


def test_each_figure_is_in_the_column_of_its_heading() -> None:
    summary = replace(
        under("kpa"), attainment=0.91, attainment_worst=0.82, replicas_mean=1.25, replicas_max=4, gpu_hours=12.5,
        actions_per_hour=7.0, flips_per_hour=3.0,
    )  # fmt: skip
    paper = StringIO()
    Console(file=paper, width=200).print(comparison_table([Row(LAWS["kpa"].default(), summary)], SPEC, "coarse steps"))
    title, above, below, _, figures, caption = paper.getvalue().splitlines()
    assert (title.strip(), caption.strip()) == ("Laws at their defaults, 1 – 4 replicas", "coarse steps")
    headings = (("SLO", "met"), ("worst", "5 min"), ("replicas", "mean"), ("", "most"), ("GPU-", "hours"),
                ("moves", "per h"), ("reversals", "per h"))  # fmt: skip
    values = ("91.00%", "82.00%", "1.25", "4", "12.500", "7.0", "3.0")
    end = 0
    for (upper, lower), value in zip(headings, values, strict=True):
        end = figures.index(value, end) + len(value)
        assert above[:end].endswith(upper or "  ") and below[:end].endswith(lower)


def test_an_unknown_law_is_one_sentence_with_the_known_ones_and_exit_code_2(tmp_path: Path) -> None:
    code, _, err = simulate(tmp_path, "--compare", "kpa,cpu")
    assert code == 2
    assert "'cpu' is no law; known are sluice, replicas-only, admission-only, hpa-queue" in err
    assert len(err.strip().splitlines()) == 1

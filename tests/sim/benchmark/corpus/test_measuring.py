"""Measuring the corpus: keys of stored pieces, resuming, the loop of Sluice alone, and the command line."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sluice_sim.benchmark.corpus import tasks
from sluice_sim.benchmark.corpus.__main__ import app
from sluice_sim.benchmark.corpus.figures import from_dict, to_dict
from sluice_sim.benchmark.corpus.laws import CONSTANT, PEERS, SCHEDULE, STOCK, law_named
from sluice_sim.benchmark.corpus.load import read_loads
from sluice_sim.benchmark.corpus.store import CorpusStore
from sluice_sim.benchmark.corpus.tasks import CORPUS, LawRun, code_of_law, measure
from sluice_sim.benchmark.run import provenance, sources
from sluice_sim.benchmark.run.runner import Runner
from tests.sim.benchmark.corpus.figures import figures

NAME = "poisson-1"  # a cheap load
RUNS = {
    "sluice": LawRun(NAME, "sluice"),
    "peer": LawRun(NAME, "kpa"),
    "constant": LawRun(NAME, CONSTANT, 2.0),
    "schedule": LawRun(NAME, SCHEDULE, counts=(1, 2)),
    "stock": LawRun(NAME, STOCK, 2.0),
}


def changed(monkeypatch: pytest.MonkeyPatch, part: str) -> dict[str, bool]:
    """Which keys change when the files whose path contains `part` change."""
    before = {name: tasks.key(task) for name, task in RUNS.items()}
    content = provenance._content
    code_of_law.cache_clear()
    monkeypatch.setattr(provenance, "_content", lambda path: content(path) + part * (part in path.as_posix()))
    after = {name: tasks.key(task) for name, task in RUNS.items()}
    monkeypatch.undo()
    code_of_law.cache_clear()
    return {name: before[name] != after[name] for name in RUNS}


@pytest.mark.parametrize("part", ["sluice_operator/autoscaler/replicas", "sluice_perfmodel"])
def test_a_change_of_the_law_makes_its_own_pieces_stale_and_no_others(
    monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    assert changed(monkeypatch, part) == {name: name == "sluice" for name in RUNS}


@pytest.mark.parametrize("part", ["sluice_sim/engine/coarse", "sluice_sim/cluster", "corpus/figures.py"])
def test_a_change_of_the_simulator_makes_all_pieces_stale(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    assert all(changed(monkeypatch, part).values())


def test_a_change_of_a_peer_makes_the_peers_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    assert changed(monkeypatch, "policies/kpa.py") == {name: name == "peer" for name in RUNS}


def test_the_tables_of_the_report_are_no_part_of_any_measurement() -> None:
    files = {path.name for path in sources.reached(tasks._ROOTS, tasks._STOP)}
    assert not {"bars.py", "table.py", "text.py", "hindsight.py", "plan.py", "loads.toml"} & files


def test_a_load_of_other_parameters_has_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before, loads = tasks.key(RUNS["peer"]), dict(read_loads())
    for changes, same in (({"family": "other", "size": 9}, True), ({"cold_start": 61.0}, False)):
        monkeypatch.setattr(tasks, "read_loads", lambda by=changes: loads | {NAME: replace(loads[NAME], **by)})
        assert (tasks.key(RUNS["peer"]) == before) == same


def test_figures_survive_the_store() -> None:
    found = figures(0.987, 5.0)
    assert from_dict(json.loads(json.dumps(to_dict(found)))) == found


def test_a_run_is_repeatable_and_counts_each_request_once() -> None:
    one, two = (from_dict(measure(RUNS["schedule"])) for _ in range(2))
    assert replace(one, cpu_seconds=0.0) == replace(two, cpu_seconds=0.0)
    assert one.whole.missed == sum(one.missed)
    assert one.first.offered + one.after.offered == one.whole.offered > 1000


def test_a_constant_fleet_has_its_count_from_the_start_and_a_law_the_fewest() -> None:
    constant, law = from_dict(measure(RUNS["constant"])), from_dict(measure(RUNS["peer"]))
    seconds = read_loads()[NAME].first_seconds
    assert constant.first.gpu_hours == pytest.approx(2 * 2 * seconds / 3600.0)
    assert law.first.gpu_hours < constant.first.gpu_hours


def test_the_loop_of_sluice_alone_uses_others_of_any_code_and_never_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pieces.jsonl"
    store = CorpusStore(path)
    for task in RUNS.values():
        store.put(tasks.key(task), "measured before", to_dict(figures(0.9, 1.0)))
    monkeypatch.setattr(tasks, "code_of_law", lambda law: "0" * 20)
    keys = {name: tasks.key(task) for name, task in RUNS.items()}
    assert not any(key in CorpusStore(path) for key in keys.values())
    lenient = CorpusStore(path, any_code=True)
    assert {name: key in lenient for name, key in keys.items()} == {name: name != "sluice" for name in RUNS}


def test_a_second_run_measures_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def plan() -> Any:
        yield [RUNS["peer"], RUNS["constant"]]

    kind = replace(CORPUS, measure=lambda task: to_dict(figures(0.9, 1.0)))
    first = Runner(CorpusStore(tmp_path / "pieces.jsonl"), 0, kind=kind)
    first.run([plan()])
    again = Runner(CorpusStore(tmp_path / "pieces.jsonl"), 0, kind=kind)
    again.run([plan()])
    assert (first.measured, again.measured) == (2, 0)


def test_every_law_has_a_name() -> None:
    assert "sluice" not in PEERS and "replicas-only" not in PEERS and "llm-d-slo" in PEERS
    assert law_named(STOCK, 3.0).setting == 3.0 and not law_named(STOCK, 3.0).admits
    assert law_named(CONSTANT, 3.0).admits
    with pytest.raises(KeyError):
        law_named("unheard-of")
    assert law_named("no-memory").name == "no-memory"
    assert tasks.key(LawRun(NAME, "no-memory")).startswith(tasks.OWN_PREFIX)


def test_the_command_prints_and_writes_the_table_and_fails_on_a_missed_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--loads", NAME, "--laws", "kpa", "--workers", "0", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["corpus", *options])
    ran = CliRunner().invoke(app, options)
    text = (tmp_path / "table.txt").read_text(encoding="utf-8")
    assert NAME in ran.stdout and text.splitlines()[0] == " ".join(["python -m sluice_sim.benchmark.corpus", *options])
    value = json.loads((tmp_path / "score.json").read_text(encoding="utf-8"))
    assert ran.exit_code == (0 if all(value["bars"].values()) else 1)
    assert set(value["loads"]) == {NAME} and set(value["loads"][NAME]["peers"]) == {"kpa"}
    assert (tmp_path / "corpus.png").stat().st_size > 0
    again = CliRunner().invoke(app, options)
    assert "0 pieces measured" in again.output and again.exit_code == ran.exit_code


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--loads", "nosuch"], "'nosuch' is unknown"),
        (["--families", "nosuch"], "'nosuch' is unknown"),
        (["--laws", "nosuch"], "no peer is called nosuch"),
    ],
)
def test_an_unknown_name_is_an_error(options: list[str], said: str, tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, [*options, "--out", str(tmp_path)], env={"COLUMNS": "400", "TERM": "dumb"})
    assert ran.exit_code == 2 and said in ran.output

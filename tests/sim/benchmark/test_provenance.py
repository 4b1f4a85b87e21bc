"""Stored pieces record the code that measured them, and every table marks pieces of other code."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from sluice_sim.benchmark import agreement
from sluice_sim.benchmark.__main__ import app
from sluice_sim.benchmark.agreement import Hour, Pair, shown
from sluice_sim.benchmark.report.table import TrackScore, as_json, laws_table, overload_table
from sluice_sim.benchmark.run import provenance, rekey
from sluice_sim.benchmark.run import runner as runner_module
from sluice_sim.benchmark.run.bench import BenchmarkScope, measure_tracks
from sluice_sim.benchmark.run.job import CLAIRVOYANT, STATIC, Outcome
from sluice_sim.benchmark.run.provenance import OTHER_CODE, code_digest, digest_of
from sluice_sim.benchmark.run.rekey import Ambiguous, codes_now, translation
from sluice_sim.benchmark.run.runner import Runner
from sluice_sim.benchmark.run.store import RESULTS, UNKNOWN, Store, code_of_key, key_of
from sluice_sim.benchmark.run.tasks import Task, WorkBoundTask

LAWS = ("sluice", "replicas-only", "kpa", "llm-d-slo")


def figures(task: Task) -> dict[str, Any]:
    """In place of minutes of simulation: an outcome that reaches every target."""
    if isinstance(task, WorkBoundTask):
        return {"gpu_hours": 1.0}
    outcome = Outcome(
        attainment=0.995, worst=0.9, gpu_hours=5.0, replicas_mean=5.0, replicas_max=8, actions=1.0, flips=0.0,
        requests=100, refused=0, hit_ratio=0.0, ttft99=1.0, itl99=0.1, mode="coarse", cpu_seconds=1.0, seconds=600.0,
        extra={"of_bound": 0.95, "high_good": 1.0, "low_good": 0.9, "fairness_gap": 0.1, "fairness_bound": 1.0},
    )  # fmt: skip
    return outcome.to_dict()


def scores(store: Store, track: str) -> tuple[int, TrackScore]:
    """How many pieces were measured for the short form of a track's board, and the board."""
    runner = Runner(store, workers=0)
    (score,) = measure_tracks(BenchmarkScope(tracks=(track,), laws=LAWS, robust=False), runner)
    return runner.measured, score


def text_of(table: Any) -> list[str]:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table)
    return captured.get().splitlines()


def names(table: Any) -> set[str]:
    return {line.split()[1] for line in text_of(table) if line.startswith("│")}


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store of T2's and T5's short boards."""
    monkeypatch.setattr(runner_module, "TRACKS", replace(runner_module.TRACKS, measure=figures))
    path = tmp_path / "short" / "pieces.jsonl"
    for track in ("T2", "T5"):
        count, score = scores(Store(path), track)
        assert count and not score.other_code
    return path


@pytest.fixture
def other_peers(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the store is there, the peers' code is not what it was."""

    def digest(law: str, mode: Any) -> str:
        return "0" * 20 if law in ("kpa", "llm-d-slo") else code_digest(law, mode)

    monkeypatch.setattr("sluice_sim.benchmark.run.store.code_digest", digest)


def test_a_piece_records_the_code_and_the_commit_that_measured_it(stored: Path) -> None:
    for line in map(json.loads, stored.read_text().splitlines()):
        assert line["measured_by"] == code_of_key(line["key"]) != ""
        assert line["commit"] == provenance.commit()
    codes = {json.loads(line)["measured_by"] for line in stored.read_text().splitlines()}
    assert codes >= {code_digest(law, "coarse") for law in ("sluice", "kpa", STATIC)}


@pytest.mark.usefixtures("other_peers")
def test_pieces_of_other_code_are_measured_again(stored: Path) -> None:
    again, score = scores(Store(stored), "T2")
    assert again > 0 and not score.other_code
    assert scores(Store(stored), "T2")[0] == 0


@pytest.mark.usefixtures("other_peers")
def test_pieces_of_other_code_are_marked_in_tables_and_json(stored: Path) -> None:
    code = code_digest("kpa", "coarse")
    count, score = scores(Store(stored, any_code=True), "T2")
    assert (count, set(score.other_code), score.other_code["kpa"]) == (0, {"kpa", "llm-d-slo"}, {code})
    assert names(laws_table(score)) == {"sluice", "replicas-only", "kpa*", "llm-d-slo*"}
    assert f"* measured by other code than this: {code[:10]}" in "\n".join(text_of(laws_table(score)))
    found = as_json([score], "")["tracks"]["T2"]
    assert found["measured_by_other_code"] == {"kpa": [code], "llm-d-slo": [code]}
    assert found["laws"]["kpa"]["tuned"][OTHER_CODE] == code and OTHER_CODE not in found["laws"]["sluice"]["tuned"]
    count, overload = scores(Store(stored, any_code=True), "T5")
    assert (count, names(overload_table(overload))) == (0, {"sluice", "replicas-only", "llm-d-slo*"})
    assert any("measured by other code" in line for line in text_of(overload_table(overload)))


def test_one_marked_piece_behind_a_row_marks_the_row(stored: Path) -> None:
    lines = [json.loads(line) for line in stored.read_text().splitlines()]
    one = next(line for line in lines if line["about"].startswith("T2 short_train: kpa"))
    one["measured_by"] = "f" * 20
    stored.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert scores(Store(stored), "T2")[1].other_code == {"kpa": {"f" * 20}}


def test_the_command_marks_rows_criteria_and_the_file(stored: Path) -> None:
    lines = [json.loads(line) for line in stored.read_text().splitlines()]
    for line in lines:
        line["measured_by"] = "f" * 20
    stored.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = ["--tracks", "T2", "--laws", ",".join(LAWS), "--no-robust", "--workers", "0", "--as-stored"]
    result = CliRunner().invoke(app, [*options, "--out", str(stored.parents[1])])
    text = (stored.parent / "table.txt").read_text()
    assert "0 pieces measured" in " ".join(result.output.split()), result.output
    for expected in ("sluice* ", "kpa* ", "static peak* ", "* measured by other code than this: ffffffffff"):
        assert expected in text, text
    assert "--as-stored" in text.splitlines()[0]
    assert {line.split()[0] for line in text.splitlines() if " T2: " in line} <= {"met*", "MISSED*"}


def test_a_stored_line_without_provenance_is_marked(tmp_path: Path) -> None:
    path = tmp_path / "pieces.jsonl"
    path.write_text(json.dumps({"key": "asked-code", "about": "", "value": {"x": 1}}) + "\n")
    assert Store(path)["asked-code"] == {"x": 1, OTHER_CODE: UNKNOWN}


def test_the_agreement_table_marks_rows_of_other_code(tmp_path: Path) -> None:
    outcome = Outcome(**figures(agreement.job(agreement.HOURS[0], "exact")))
    pair = Pair(Hour("T2", 600, 30), outcome, outcome)
    assert "measured by other code" not in "\n".join(text_of(shown([pair])))
    text = "\n".join(text_of(shown([replace(pair, other_code=frozenset({"f" * 20}))])))
    assert "T2 from 600 s*" in text and "* measured by other code than this: ffffffffff" in text
    store = Store(tmp_path / "agreement.jsonl", any_code=True)
    for mode in agreement.MODES:
        asked = key_of(pair.hour.narrowed(), agreement.job(pair.hour, mode)).partition("-")[0]
        store.put(f"{asked}-older", "known", outcome.to_dict())
    assert agreement.compare([pair.hour], store) == [replace(pair, other_code=frozenset({"older"}))]


def test_a_digest_covers_contents_and_not_paths(tmp_path: Path) -> None:
    texts = {"a.py": '"""Words."""\nX = 1  # one\n', "b/c.py": "X = 1\n", "d.py": "X = 2\n"}
    (tmp_path / "b").mkdir()
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    one, moved, other = (digest_of([tmp_path / name]) for name in texts)
    assert one == moved != other
    assert digest_of([tmp_path / "a.py", tmp_path / "d.py"]) == digest_of([tmp_path / "d.py", tmp_path / "b/c.py"])


def test_rekeyed_pieces_are_valid_and_keep_the_code_that_measured_them(stored: Path, tmp_path: Path) -> None:
    """The code is now what it is; the store and the list of digests are of the code before."""
    now = codes_now()
    older = {name: f"{index:020x}" for index, name in enumerate(sorted({*now.values()}))}
    before = tmp_path / "before.json"
    before.write_text(json.dumps({name: older[code] for name, code in now.items()}))
    text = stored.read_text()
    for code, old in older.items():
        text = text.replace(code, old)
    foreign = json.dumps({"key": "asked-foreign", "measured_by": "foreign", "about": "", "value": {}})
    stored.write_text(f"{text}{foreign}\n")
    result = CliRunner().invoke(rekey.app, ["apply", str(before), "--store", str(stored)])
    assert result.exit_code == 0, result.output
    count, score = scores(Store(stored), "T2")
    assert count == 0
    assert score.other_code["kpa"] == {older[now["kpa coarse"]]} and set(score.other_code) == {*LAWS, "static"}
    assert stored.read_text().splitlines()[-1] == foreign


def test_rekeying_fails_if_one_old_digest_maps_to_two_new_ones() -> None:
    assert translation({"a exact": "1", "gone exact": "3"}, {"a exact": "2", "new exact": "4"}) == {"1": "2"}
    with pytest.raises(Ambiguous, match=r"'[ab] exact' was 1"):
        translation({"a exact": "1", "b exact": "1"}, {"a exact": "2", "b exact": "3"})


@pytest.mark.parametrize("name", ["pieces.jsonl", "agreement.jsonl"])
def test_every_committed_piece_says_which_code_measured_it(name: str) -> None:
    lines = [json.loads(line) for line in (RESULTS / name).read_text().splitlines()]
    assert lines and all(len(line["measured_by"]) == len(code_digest(CLAIRVOYANT, "coarse")) for line in lines)

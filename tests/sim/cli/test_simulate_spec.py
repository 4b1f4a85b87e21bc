"""The simulation follows the LLMDeployment's spec as a cluster does; fields that are not simulated are noted."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from sluice.cli import app
from sluice_sim.cli.compare import compare
from sluice_sim.cluster.fleet import Fleet
from sluice_sim.cluster.scenario import Settings
from sluice_sim.traces import Arrival
from tests.operator.autoscaler.fleet import MODEL, spec
from tests.sim.cli.test_simulate_command import PROFILE, YAML

WALL = datetime(2026, 3, 2, 7, 58, tzinfo=UTC).timestamp()  # a Monday
EIGHT: dict[str, Any] = {"cron": "0 8 * * 1-5", "durationSeconds": 120, "minReplicas": 2}
SETTINGS = Settings(MODEL, kv_tokens=32_000, cold_start=10.0)
QUIET = tuple(Arrival(float(at), 20, 5) for at in range(0, 480, 20))


def wanted(fleet: Fleet, at: float) -> int:
    """The count asked for at that time of the quiet trace."""
    return next(count for when, count in reversed(fleet.run(QUIET).desired) if when <= at)


def simulate(folder: Path, changes: dict[str, Any], *options: str) -> tuple[dict[str, Any], str]:
    """The JSON of a minute under the usual YAML with these changes of its spec, or the error."""
    resource = yaml.safe_load(YAML)
    for name, value in changes.items():
        resource["spec"].setdefault(name, {}).update(value)
    (folder / "chat.yaml").write_text(yaml.safe_dump(resource), encoding="utf-8")
    usual = ("--rate", "0.5", "--seconds", "60", "--prompt-tokens", "20", "--output-tokens", "5", "--profile", PROFILE)
    result = CliRunner().invoke(
        app, ["simulate", str(folder / "chat.yaml"), *usual, "--kv-tokens", "32000", "--json", *options]
    )
    return json.loads(result.stdout) if result.exit_code == 0 else {}, result.stderr


def test_with_min_replicas_0_and_no_gateway_one_replica_stays(tmp_path: Path) -> None:
    run = Fleet(spec(scaling={"minReplicas": 0, "scaleToZeroAfterSeconds": 10}), SETTINGS).run(QUIET)
    assert {count for _, count in run.desired} == {count for _, count in run.replicas} == {1}
    assert all(record.good for record in run.records)
    value, _ = simulate(tmp_path, {"scaling": {"minReplicas": 0}})
    assert any("one replica stays, as in a cluster" in note for note in value["notes"])


def test_a_comparison_keeps_at_least_one_replica() -> None:
    names = ("sluice", "hpa-queue", "kpa", "dynamo-load")
    for row in compare(names, spec(scaling={"minReplicas": 0}), SETTINGS, QUIET):
        assert row.summary.replicas_min == 1 and row.summary.attainment == 1.0


def test_a_schedule_raises_the_minimum_for_its_duration() -> None:
    scheduled = Fleet(spec(scaling={"schedules": [EIGHT]}), Settings(MODEL, 32_000, cold_start=10.0, wall=WALL))
    run = scheduled.run(QUIET)
    moves = [(at, count) for (at, count), (_, before) in zip(run.desired[1:], run.desired, strict=False)
             if count != before]  # fmt: skip
    assert moves[0] == (120.0, 2)
    assert moves[1][1] == 1 and moves[1][0] >= 240.0
    assert any("the schedule 0 8 * * 1-5 asks for 2 until Mon 08:02" in said.reason.sentence for said in run.decisions)


def test_a_trace_that_begins_inside_a_schedule_begins_with_its_replicas() -> None:
    within = Settings(MODEL, 32_000, cold_start=10.0, wall=WALL + 150)
    run = Fleet(spec(scaling={"schedules": [EIGHT]}), within).run(QUIET)
    assert run.replicas[0] == (0.0, 2) and run.desired[0] == (0.0, 2)


def test_without_a_clock_schedules_are_noted_as_not_simulated(tmp_path: Path) -> None:
    changes = {"scaling": {"schedules": [EIGHT]}}
    value, _ = simulate(tmp_path, changes)
    assert value["summary"]["replicas_max"] == 1
    assert any(
        "schedules: not simulated, since a trace has no date: give its start with --clock" in note
        for note in value["notes"]
    )
    for clock in ("2026-03-02T08:00", "2026-03-02 10:00+02:00"):
        value, _ = simulate(tmp_path, changes, "--clock", clock)
        assert value["summary"]["replicas_min"] == 2
        assert "the trace begins on Mon 2026-03-02 08:00 UTC" in value["notes"]
        assert not any("schedules" in note for note in value["notes"])


def test_a_clock_without_a_zone_is_read_as_utc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        with monkeypatch.context() as away:
            away.setenv("TZ", "America/New_York")
            time.tzset()
            value, _ = simulate(tmp_path, {}, "--clock", "2026-03-02T08:00")
    finally:
        time.tzset()
    assert "the trace begins on Mon 2026-03-02 08:00 UTC" in value["notes"]


def test_ignored_spec_fields_are_noted_only_if_they_are_set(tmp_path: Path) -> None:
    plain, _ = simulate(tmp_path, {})
    assert not any("spec." in note for note in plain["notes"])
    engine = {"kvCache": {"size": "2Gi", "memoryPercent": 50, "cpuOffloadGiB": 4}}
    value, _ = simulate(tmp_path, {"engine": engine, "routing": {"policy": "LeastLoaded"}})
    said = [note for note in value["notes"] if note.startswith("spec.")]
    assert said == [
        "spec.routing.policy LeastLoaded: not simulated; --routing round_robin is",
        "spec.engine.kvCache.size and spec.engine.kvCache.memoryPercent: not simulated; "
        + "a replica holds 32000 KV tokens, from the profile or --kv-tokens",
        "spec.engine.kvCache.cpuOffloadGiB: not simulated; preempted requests compute their prompt again",
    ]
    value, _ = simulate(tmp_path, {"routing": {"policy": "LeastLoaded"}}, "--routing", "least_loaded")
    assert not any("spec." in note for note in value["notes"])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--clock", "eight"), "--clock: expected a time like 2026-03-02T08:00 (UTC)"),
        (("--clock", "9999-12-31"), "a trace begins between 1970 and 2200"),
        (("--clock", "0001-01-01T00:00+14:00"), "a trace begins between 1970 and 2200"),
        (("--seconds", "inf"), "--seconds: expected a number, found inf"),
        (("--cold-start", "inf"), "--cold-start: expected a number, found inf"),
        (("--lengths", "nosuchfile"), "--lengths and --start are about a trace: give --trace with them"),
        (("--start", "5"), "--lengths and --start are about a trace: give --trace with them"),
    ],
)
def test_an_invalid_option_is_reported_in_one_sentence(tmp_path: Path, options: tuple[str, str], sentence: str) -> None:
    _, error = simulate(tmp_path, {}, *options)
    assert sentence in error and len(error.strip().splitlines()) == 1


def test_a_lengths_file_beside_a_trace_with_lengths_is_rejected_unread(tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_text('{"arrival": 0, "input_tokens": 5, "output_tokens": 5}\n', encoding="utf-8")
    (tmp_path / "chat.yaml").write_text(YAML, encoding="utf-8")
    options = ["simulate", str(tmp_path / "chat.yaml"), "--trace", str(trace), "--lengths", "nosuchfile"]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 2
    assert result.stderr.strip() == (
        f"{trace}: a file of lengths was given, but this trace has request lengths: leave it out"
    )

"""`sluice explain --local`: the status of a running `sluice up` of this user, and what it says where none runs."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sluice import __version__, contract
from sluice.cli import app
from sluice.up.state_file import StateFile, state_folder
from sluice_operator.cluster.client import Key


def resource(name: str, version: str = "1") -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True", "reason": "Serving"}
    decisions = [{"time": "T", "message": "A pod is idle."}]
    status = {"readyReplicas": 1, "desiredReplicas": 2, "conditions": [ready], "decisions": decisions}
    return {"metadata": {"name": name, "namespace": "default", "resourceVersion": version}, "status": status}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return state_folder()


def explain(*arguments: str) -> tuple[int, list[str]]:
    result = CliRunner().invoke(app, ["explain", *arguments])
    return result.exit_code, result.output.splitlines()


def test_the_only_running_one_needs_no_name_and_is_about_replicas(folder: Path) -> None:
    file = StateFile(Key("default", "chat"))
    file.write(resource("chat"))
    code, lines = explain("--local")
    assert (code, lines[:2]) == (0, ["1/2 replicas ready. Serving", "T  A replica is idle."])
    assert explain("chat", "--local") == (code, lines)
    assert folder.stat().st_mode & 0o777 == 0o700
    file.remove()
    assert explain("--local")[0] == contract.EXIT_FAILED


def test_a_name_that_is_unknown_or_missing_is_answered_with_those_that_run(folder: Path) -> None:
    for name in ("chat", "code"):
        StateFile(Key("default", name)).write(resource(name))
    assert explain("other", "--local")[1] == [
        "No `sluice up` of the name other runs on this machine; there are: chat, code."
    ]
    assert explain("--local")[1] == ["Several run on this machine: chat, code. Name one of them."]
    assert explain()[0] == contract.EXIT_USAGE


def test_the_file_of_a_killed_process_counts_as_none(folder: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    folder.mkdir()
    (folder / "default.chat.json").write_text(json.dumps({"pid": ended.pid, "resource": resource("chat")}))
    assert explain("--local")[1] == ["No `sluice up` of this user runs on this machine. Start one with sluice up FILE."]


def test_a_changed_resource_replaces_the_file_and_an_equal_one_does_not(folder: Path) -> None:
    file = StateFile(Key("default", "chat"))
    file.write(resource("chat"))
    (path,) = folder.iterdir()
    before = path.stat().st_ino
    file.write(resource("chat"))
    assert path.stat().st_ino == before
    file.write(resource("chat", "2"))
    assert json.loads(path.read_text())["resource"]["metadata"]["resourceVersion"] == "2"


def test_the_version_is_printed() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"sluice {__version__}\n")
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)

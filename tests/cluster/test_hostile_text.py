"""Characters that command a terminal, in texts that others have written: no command prints one, and JSON keeps the data."""

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from sluice.cli import app
from sluice.cluster.columns import Column, table
from sluice.sentences import escaped, wrapped
from sluice_kube.api import collection
from tests.cluster.api_server import ApiServer
from tests.cluster.resources import condition, in_namespace, serving

# A new title of the window, a cleared screen (also as one C1 character), a direction that reorders, a mark, a separator.
HOSTILE: Final = "\x1b]0;owned\x07\x1b[2J\x9b2J\u202elairt\u2066\u061c\u2028\r\x7f"
RAW: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def hostile() -> dict[str, Any]:
    """A resource whose every text is hostile. No schema and no operator would let all of it through."""
    text = f"before {HOSTILE} after."
    conditions = [condition("Ready", "False", f"Failed{HOSTILE}", text), condition("SLOMet", "False", "Missed", text)]
    decisions = [{"time": f"2026-11-27T00:00:00Z{HOSTILE}", "reason": text, "dial": "replicas", "message": text}]
    made = serving(f"chat{HOSTILE}", conditions=conditions, decisions=decisions)
    return made | {"spec": {"model": {"uri": f"file:///models/{HOSTILE}"}}}


@pytest.fixture
def served(server: ApiServer) -> ApiServer:
    server.serve(in_namespace("apps"), hostile())
    server.objects[f"{in_namespace('apps')}/chat"] = hostile()
    pod = {
        "metadata": {"name": f"p{HOSTILE}", "namespace": "apps", "labels": {"app.kubernetes.io/name": "sluice-engine"}}
    }
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    server.serve(collection("v1", "pods", "apps"), pod | ready)
    return server


def printed(*arguments: str) -> str:
    return CliRunner().invoke(app, list(arguments)).output


COMMANDS: Final = (
    ["status", "-n", "apps"],
    ["status", "chat", "-n", "apps"],
    ["explain", "chat", "-n", "apps"],
    ["top", "--once", "--interval", "0.5", "-n", "apps"],
    ["check"],
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command[:2]))
@pytest.mark.parametrize("output", ["text", "json"])
def test_no_command_prints_a_character_that_commands_a_terminal(
    served: ApiServer, command: list[str], output: str
) -> None:
    served.objects["/version"] = {"gitVersion": f"v1.34{HOSTILE}"}
    text = printed(*command, "-o", output)
    assert RAW.findall(text) == []
    assert "\\u001b" in text and "\\u202e" in text


def test_json_keeps_the_data(served: ApiServer) -> None:
    found = json.loads(printed("status", "chat", "-n", "apps", "-o", "json"))
    assert found["name"] == f"chat{HOSTILE}"
    assert found["model"] == f"file:///models/{HOSTILE}"


def test_the_bundle_names_what_it_lacks_without_such_characters(served: ApiServer, tmp_path: Path) -> None:
    text = printed("report", "-n", "apps", "-f", str(tmp_path / "r.tar.gz"))
    assert "not contained" in text and RAW.findall(text) == []


def test_columns_stay_in_line_and_within_the_width() -> None:
    columns = (Column("NAME", least=4), Column("READY", right=True))
    rows = [[f"a\nb{HOSTILE}", "1/1"], ["plain", "2/2"]]
    lines = table(columns, rows, 60)
    assert len({line.rindex("/") for line in lines[1:]}) == 1
    assert max(map(cell_len, lines)) <= 60
    assert "\n" not in "".join(lines) and lines[1].startswith("a\\u000ab\\u001b]0;owned")


@pytest.mark.parametrize("text", ["日本語 and العربية", "emoji 👩‍💻", "a\nb", "–…×"])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert escaped(text) == text


def test_an_escaped_text_does_not_change_again() -> None:
    assert escaped(escaped(HOSTILE)) == escaped(HOSTILE)
    assert wrapped(f"a {HOSTILE}", 20) == wrapped(wrapped(f"a {HOSTILE}", 2000), 20)

"""Schemas and patterns that could cost a server its time or its stack: each answer comes within two seconds.

The engine's regular expressions are automata (llguidance): they do not backtrack, so that a pattern which takes a
backtracking matcher exponential time is an ordinary one here. A 200 is the right answer to it. One whose automaton is too
large is a 400, after at most a second of processor time in the process that compiles on trial.
"""

import json
import time
from typing import Any

import pytest

from tests.engine.server.transport.conftest import GOOD
from tests.engine.serving import CHAT, Answer, Served

SECONDS = 2.0
DEPTH = 1000
CATASTROPHIC = (
    "(a+)+$",
    "(a|a)*b",
    "(a|aa)+b",
    "((a+)+)+b",
    "(.*.*.*)*x",
    "(a{1,1000}){1,1000}b",
    "[a-z]{1,8000}",
)
pytestmark = pytest.mark.usefixtures("unharmed")


def places(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By the parameter that an error names: the fields of a chat that may have this schema."""
    parameters = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    named = {"name": "a", "schema": schema}
    return {
        "guided_json": {"guided_json": schema},
        "response_format.json_schema.schema": {"response_format": {"type": "json_schema", "json_schema": named}},
        "tools[0].function.parameters": {"tools": [tool], "tool_choice": "required"},
    }


def timed(served: Served, body: bytes) -> tuple[Answer, float]:
    """The answer to a chat, and its seconds."""
    began = time.monotonic()
    answer = served.request("POST", CHAT, body)
    return answer, time.monotonic() - began


@pytest.mark.parametrize("pattern", CATASTROPHIC)
def test_a_catastrophic_regex_is_answered_within_two_seconds(served: Served, pattern: str) -> None:
    asked = places({"type": "string", "pattern": pattern}) | {"guided_regex": {"guided_regex": pattern}}
    for param, fields in asked.items():
        answer, seconds = timed(served, json.dumps(GOOD | fields).encode())
        assert answer.status == 200 or (answer.status, answer.error["param"]) == (400, param), answer.body
        assert seconds < SECONDS, param


@pytest.mark.parametrize("level", ['{"items":', '{"properties":{"a":'])
def test_a_schema_a_thousand_deep_is_a_400_within_two_seconds(served: Served, level: str) -> None:
    deep = level * DEPTH + "{}" + "}" * (DEPTH * level.count("{"))  # deeper than json.dumps goes
    asked = places({"$ref": "DEEP"}) | {"as text": {"guided_json": deep}}
    for param, fields in asked.items():
        body = json.dumps(GOOD | fields).replace('{"$ref": "DEEP"}', deep)
        answer, seconds = timed(served, body.encode())
        assert (answer.status, answer.error["type"]) == (400, "invalid_request_error"), param
        assert len(answer.error["message"]) < 300, param
        assert seconds < SECONDS, param

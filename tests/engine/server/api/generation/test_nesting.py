"""JSON that is nested deep, or has long numbers within names and patterns, is a 400 wherever it stands in a body."""

import json
from typing import Any

import pytest

from sluice.httpapi.nesting import MAX_DEPTH, check_depth
from sluice_engine.server.errors import BadRequest
from tests.engine.serving import Served

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
ASKED: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}


def deep(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def schema_body(schema: Any) -> dict[str, Any]:
    return ASKED | {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}


def tool_body(parameters: Any) -> dict[str, Any]:
    return ASKED | {"tools": [{"type": "function", "function": {"name": "a", "parameters": parameters}}]}


def call_body(arguments: str) -> dict[str, Any]:
    call = {"id": "1", "type": "function", "function": {"name": "a", "arguments": arguments}}
    said = [*ASKED["messages"], {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "1"}]
    return ASKED | {"messages": said}


LONG_REFERENCE = {"allOf": [{}], "$ref": "#/allOf/" + "1" * 5000}
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "values of a schema": (CHAT, schema_body({"enum": [deep(300)]})),
    "the text of a schema": (CHAT, schema_body(json.dumps({"enum": [deep(300)]}))),
    "a schema's long reference": (CHAT, schema_body(LONG_REFERENCE)),
    "values of a tool": (CHAT, tool_body({"type": "object", "enum": [deep(300)]})),
    "a tool's long reference": (CHAT, tool_body({"type": "object"} | LONG_REFERENCE)),
    "a tool's nested pattern": (CHAT, tool_body({"properties": {"b": {"type": "string", "pattern": "(" * 3000}}})),
    "a tool's long repeat": (
        CHAT,
        tool_body({"properties": {"b": {"type": "string", "pattern": f"a{{{'1' * 5000}}}"}}}),
    ),
    "arguments of an earlier call": (CHAT, call_body(json.dumps({"a": deep(900)}))),
    "a variable of the template": (CHAT, ASKED | {"chat_template_kwargs": {"a": deep(300)}}),
    "a summary of reasoning": (RESPONSES, {"model": "tiny", "input": "a", "reasoning": {"summary": deep(300)}}),
}


@pytest.mark.parametrize("name", BODIES)
def test_it_is_a_400(served: Served, name: str) -> None:
    path, body = BODIES[name]
    answer = served.request("POST", path, body)
    assert answer.status == 400, answer.body[:300]
    assert answer.error["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, call_body(json.dumps({"a": deep(MAX_DEPTH - 1)}))),
        (
            RESPONSES,
            {"model": "tiny", "input": "a", "max_output_tokens": 2, "reasoning": {"summary": deep(MAX_DEPTH - 2)}},
        ),
    ],
    ids=["arguments", "summary"],
)
def test_what_is_within_the_bound_is_rendered_and_written(served: Served, path: str, body: dict[str, Any]) -> None:
    answer = served.request("POST", path, body)
    assert answer.status == 200, answer.body[:300]


def test_the_bound_is_exact_and_token_ids_are_no_levels() -> None:
    check_depth({"a": deep(MAX_DEPTH - 1), "prompt": [list(range(1000)), ["a", 1.5]]})
    with pytest.raises(BadRequest, match=f"a is nested deeper than {MAX_DEPTH} levels"):
        check_depth(deep(MAX_DEPTH + 2), "a")
    objects: Any = 1
    for _ in range(MAX_DEPTH + 2):
        objects = {"a": objects}
    with pytest.raises(BadRequest, match="The body"):
        check_depth(objects)

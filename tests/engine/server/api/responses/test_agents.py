"""Requests to /v1/responses as coding agents send them (Codex CLI 0.171): namespaces, a cached search, notes of the client."""

import json
from typing import Any

import pytest

from tests.engine.serving import Served

PATH = "/v1/responses"
COMMAND: Any = {
    "type": "function", "name": "exec_command", "description": "Runs a command in a PTY.", "strict": False,
    "parameters": {
        "type": "object", "properties": {"cmd": {"enum": ["ls", "pwd"]}}, "required": ["cmd"], "additionalProperties": False,
    },
}  # fmt: skip
CLOSE: Any = COMMAND | {"name": "close_agent", "description": "Close an agent."}
SEARCH = {"type": "web_search", "external_web_access": False}
AGENTS = {"type": "namespace", "name": "multi_agent_v1", "description": "Tools for sub-agents.", "tools": [CLOSE]}
TURN: dict[str, Any] = {
    "model": "tiny", "tools": [COMMAND, AGENTS, SEARCH], "tool_choice": "auto", "parallel_tool_calls": True,
    "input": [
        {"type": "message", "id": "msg_1", "role": "developer", "content": [{"type": "input_text", "text": "You are a coding agent."}]},
        {"type": "message", "id": "msg_2", "role": "user", "content": [{"type": "input_text", "text": "Say hello"}]},
    ],
    "reasoning": {"summary": "auto"}, "store": False, "stream": True, "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "01a218f6", "prompt_cache_retention": "24h", "client_metadata": {"turn_id": "01a2", "x-codex-window-id": "01a2:0"},
}  # fmt: skip


def events(served: Served, body: dict[str, Any]) -> list[dict[str, Any]]:
    given = served.request("POST", PATH, body)
    assert given.status == 200, given.body
    return [json.loads(each.partition(b"data: ")[2]) for each in given.body.strip().split(b"\n\n")]


def test_a_turn_of_a_coding_agent_is_answered_and_names_what_was_offered(served: Served) -> None:
    last = events(served, TURN | {"max_output_tokens": 8})[-1]
    assert last["type"] in ("response.completed", "response.incomplete")
    assert last["response"]["tools"] == [COMMAND, AGENTS]  # the search was not offered, and the response says so


def test_a_call_names_its_function_and_namespace_and_may_be_sent_back(served: Served) -> None:
    choice = {"type": "function", "name": "close_agent", "namespace": "multi_agent_v1"}
    body = TURN | {"tool_choice": choice, "temperature": 0, "max_output_tokens": 60}
    streamed = events(served, body)
    added = [each["item"] for each in streamed if each["type"] == "response.output_item.added"]
    (done,) = [each["item"] for each in streamed if each["type"] == "response.output_item.done"]
    whole = served.request("POST", PATH, body | {"stream": False}).json()["output"]
    for call in (*added, done, *whole):
        assert (call["name"], call["namespace"]) == ("close_agent", "multi_agent_v1")
    assert json.loads(done["arguments"])["cmd"] in ("ls", "pwd")
    result = {"type": "function_call_output", "call_id": done["call_id"], "output": "closed"}
    after = TURN | {"input": [*TURN["input"], done, result], "max_output_tokens": 4}
    assert events(served, after)[-1]["response"]["usage"]["input_tokens"] > 0


def test_a_call_outside_of_namespaces_has_none(served: Served) -> None:
    choice = {"type": "function", "name": "exec_command"}
    body = TURN | {"tool_choice": choice, "max_output_tokens": 60, "stream": False}
    (call,) = served.request("POST", PATH, body).json()["output"]
    assert call["name"] == "exec_command" and "namespace" not in call


def test_a_turn_without_tools_may_say_auto(served: Served) -> None:
    assert events(served, TURN | {"tools": [], "max_output_tokens": 2})


LIVE = SEARCH | {"external_web_access": True}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"tools": [COMMAND, LIVE]}, "tools[1].type"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [SEARCH], "tool_choice": "required"}, "tool_choice"),
    ({"tools": [{"type": "custom", "name": "apply_patch"}]}, "tools[0].type"),
    ({"tools": [AGENTS | {"name": None}]}, "tools[0].name"),
    ({"tools": [AGENTS | {"tools": CLOSE}]}, "tools[0].tools"),
    ({"tools": [AGENTS | {"tools": [5]}]}, "tools[0].tools[0]"),
    ({"tools": [COMMAND, AGENTS | {"tools": [CLOSE, AGENTS]}]}, "tools[1].tools[1].type"),
    ({"tools": [AGENTS | {"tools": [CLOSE | {"name": "a b"}]}]}, "tools[0].tools[0].name"),
    ({"tools": [AGENTS, AGENTS]}, "tools"),
    ({"tools": [COMMAND | {"defer_loading": True}]}, "tools[0].defer_loading"),
    ({"tools": [COMMAND | {"allowed_callers": ["programmatic"]}]}, "tools[0].allowed_callers"),
    ({"client_metadata": "x"}, "client_metadata"),
    ({"context_management": [{"type": "compaction"}]}, "context_management"),
    ({"moderation": {}}, "moderation"),
    ({"prompt_cache_retention": 5}, "prompt_cache_retention"),
    ({"prompt_cache_options": []}, "prompt_cache_options"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param"), BAD, ids=[f"{param}-{place}" for place, (_, param) in enumerate(BAD)])
def test_what_is_not_supported_is_named(served: Served, fields: dict[str, Any], param: str) -> None:
    given = served.request("POST", PATH, TURN | {"max_output_tokens": 2} | fields)
    assert (given.status, given.error["param"]) == (400, param)

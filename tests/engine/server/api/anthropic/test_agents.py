"""Requests to /v1/messages as agents send them (Claude Code 2.1, the AI SDK): attribution, edits of the context, overflow."""

import json
import re
from typing import Any

import pytest

from tests.engine.serving import Served

PATH = "/v1/messages?beta=true"
COUNT = "/v1/messages/count_tokens"
BASH: Any = {
    "name": "Bash", "description": "Executes a command.",
    "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}  # fmt: skip
RULES = {"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}}
BILLING = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197.1c0; cc_entrypoint=sdk-cli;"}
TURN: dict[str, Any] = {
    "model": "tiny", "max_tokens": 4, "stream": True, "system": [BILLING, RULES], "tools": [BASH], "thinking": {"type": "adaptive"},
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Say hello", "cache_control": {"type": "ephemeral"}}]},
        {"role": "system", "content": "Skills: none."},
    ],
    "metadata": {"user_id": '{"device_id":"8029","session_id":"1ed1"}'}, "output_config": {"effort": "high"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
}  # fmt: skip
BETA = {
    "Content-Type": "application/json",
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,context-management-2025-06-27,effort-2025-11-24",
}
EDITS = {"edits": [{"type": "clear_tool_uses_20250919"}]}


def test_a_turn_of_a_coding_agent_is_answered(served: Served) -> None:
    given = served.request("POST", PATH, TURN, BETA)
    assert given.status == 200
    assert b"event: message_stop" in given.body


def test_the_attribution_for_anthropic_is_not_part_of_the_prompt(served: Served) -> None:
    def counted(system: Any) -> int:
        body = {"model": "tiny", "messages": TURN["messages"]} | ({"system": system} if system else {})
        return int(served.request("POST", COUNT, body).json()["input_tokens"])

    assert counted([BILLING, RULES]) == counted([RULES]) == counted("You are an agent.")
    assert counted([BILLING]) == counted(None) < counted([RULES])


def test_tools_may_be_marked_for_eager_streaming_and_for_direct_calls(served: Served) -> None:
    tool = BASH | {
        "eager_input_streaming": True,
        "defer_loading": False,
        "allowed_callers": ["direct"],
        "input_examples": [],
    }
    body = TURN | {"tools": [tool], "tool_choice": {"type": "tool", "name": "Bash"}, "max_tokens": 20}
    assert b"input_json_delta" in served.request("POST", PATH, body, BETA).body


def test_an_answer_without_content_and_an_empty_result_may_be_sent_back(served: Served) -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": []},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": []}]},
    ]
    assert served.request("POST", PATH, TURN | {"messages": messages}, BETA).status == 200


def test_the_model_reads_that_a_tool_failed(served: Served) -> None:
    def counted(**fields: Any) -> int:
        result = {"type": "tool_result", "tool_use_id": "toolu_1"} | fields
        body = {"model": "tiny", "messages": [{"role": "user", "content": [result]}]}
        return int(served.request("POST", COUNT, body).json()["input_tokens"])

    assert counted(content="No such city.", is_error=True) == counted(content="Error: No such city.")
    assert counted(is_error=True) == counted(content="Error", is_error=True) == counted(content="Error")
    assert counted(content="sunny", is_error=False) == counted(content="sunny")


def test_the_older_name_of_the_format_holds(served: Served) -> None:
    form = {"type": "json_schema", "schema": {"enum": ["left", "right"]}}
    body = TURN | {"stream": False, "output_format": form, "tools": [], "max_tokens": 20}
    (block,) = served.request("POST", PATH, body, BETA).json()["content"]
    assert json.loads(block["text"]) in ("left", "right")


def test_an_overflow_is_told_in_the_words_that_clients_look_for(served: Served) -> None:
    """With the first sentence a client asks for fewer tokens, with the second one it shortens the conversation."""
    asked = served.request("POST", PATH, TURN | {"max_tokens": 32_000}, BETA).json()["error"]["message"]
    found = re.match(r"input length and `max_tokens` exceed context limit: (\d+) \+ 32000 > (\d+), decrease ", asked)
    assert found is not None, asked
    prompt, context = map(int, found.groups())
    fits = TURN | {
        "max_tokens": context - prompt,
        "output_config": {"format": {"type": "json_schema", "schema": {"const": 1}}},
    }
    assert served.request("POST", PATH, fits, BETA).status == 200
    for words in ("many words " * 3000, "many words " * (context // 3)):
        long = TURN | {"messages": [{"role": "user", "content": words}]}
        message = served.request("POST", PATH, long, BETA).json()["error"]["message"]
        told = re.search(r"prompt is too long[^0-9]*(\d+) tokens > (\d+) maximum", message)
        assert told is not None and int(told[1]) > int(told[2]) == context - 1, message


def test_a_wrong_key_is_not_to_be_tried_again(served_with_keys: Served) -> None:
    given = served_with_keys.request("POST", PATH, TURN, BETA | {"Authorization": "Bearer wrong"})
    assert (given.status, given.headers["x-should-retry"]) == (401, "false")


FAILED = {"type": "tool_result", "tool_use_id": "1", "content": "x", "is_error": "yes"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}
PICTURE = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "x"}, IMAGE]}
FORM = {"type": "json_schema", "schema": {}}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"context_management": EDITS}, "context_management.edits[0].type 'clear_tool_uses_20250919' is not supported"),
    ({"context_management": []}, "context_management must be"),
    ({"context_management": {"edits": 5}}, "context_management.edits must be"),
    ({"context_management": {"edit": []}}, "Unknown field context_management.edit"),
    ({"tools": [BASH | {"eager_input_streaming": "yes"}]}, "tools[0].eager_input_streaming must be"),
    ({"tools": [BASH | {"defer_loading": True}]}, "tools[0].defer_loading is not supported"),
    ({"tools": [BASH | {"input_examples": [{"command": "ls"}]}]}, "tools[0].input_examples is not supported"),
    ({"inference_geo": "eu"}, "inference_geo is not supported"),
    ({"speed": "fast"}, "speed is not supported"),
    ({"mcp_servers": [{"type": "url"}]}, "mcp_servers is not supported"),
    ({"container": "c"}, "container is not supported"),
    ({"output_format": {"type": "yaml"}}, "output_format must be"),
    ({"output_format": FORM, "output_config": {"format": FORM}}, "output_format and output_config.format"),
    ({"output_format": FORM | {"schema": {"type": "array", "uniqueItems": True}}}, "output_format.schema cannot be"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content must"),
    ({"messages": [{"role": "user", "content": [FAILED]}]}, "messages[0].content[0].is_error must be"),
    ({"messages": [{"role": "user", "content": [PICTURE]}]}, "messages[0].content[0].content[1].type 'image' is not supported: only text is."),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "words"), BAD, ids=[words for _, words in BAD])
def test_what_is_not_supported_is_named(served: Served, fields: dict[str, Any], words: str) -> None:
    given = served.request("POST", PATH, TURN | fields, BETA)
    assert given.status == 400
    assert given.json()["error"]["message"].startswith(words)

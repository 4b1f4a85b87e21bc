"""The document: committed as generated, served, complete; and each field is described as it is checked."""

from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest

from sluice import contract
from sluice_engine.server.api import about, data_routes
from sluice_engine.server.api.anthropic import request_form as messages_form
from sluice_engine.server.api.anthropic import translate as messages
from sluice_engine.server.api.generation import request_schema
from sluice_engine.server.api.request_fields import Fields, object_form
from sluice_engine.server.api.responses import request_form as responses_form
from sluice_engine.server.api.responses import translate as responses
from sluice_engine.server.errors import ApiError
from sluice_engine.server.openapi.__main__ import main
from sluice_engine.server.openapi.document import document
from tests.engine.serving import Served

HI = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
Parse = Callable[[dict[str, Any]], Any]
PARSERS: dict[str, tuple[Parse, Fields, tuple[str, ...], dict[str, Any]]] = {
    "chat": (
        lambda body: request_schema.chat(body, "tiny"),
        request_schema.CHAT, request_schema.CHAT_REQUIRED, {"messages": HI},
    ),
    "completion": (
        lambda body: request_schema.completion(body, "tiny"),
        request_schema.COMPLETION, request_schema.COMPLETION_REQUIRED, {"prompt": "hi"},
    ),
    "responses": (
        lambda body: request_schema.chat(responses.chat_body(body)[0], "tiny"),
        responses_form.FIELDS, responses_form.REQUIRED, {"input": "hi"},
    ),
    "messages": (
        lambda body: request_schema.chat(messages.chat_body(body)[0], "tiny", messages_form.STOPS_OF_CHAT),
        messages_form.FIELDS, messages_form.REQUIRED, {"messages": HI, "max_tokens": 5},
    ),
}  # fmt: skip
NEEDED: dict[str, dict[str, Any]] = {
    "resume": {"stream": True, "temperature": 0},  # what a field needs beside it to mean something
    "top_logprobs": {"logprobs": True},
    "stream_options": {"stream": True},
    "best_of": {"n": 1},
    "tool_choice": {"tools": [TOOL]},
}
VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 2, 5, 10**30, 0.5, -0.5, 1.5, 1e300, "", "a", "5", "none", "auto", "low", "high", "required",
    "text", "[", "{}", "x" * 200_000, [], [1], [-1], ["a"], [""], [True], [None], [[]], [[1]], ["a", 1], ["text"], ["a"] * 5,
    list(range(70)), ["a"] * 200, [{}], HI, [{"role": "user"}], [{"role": "robot", "content": "x"}], [{"role": "user", "content": []}],
    [{"role": "user", "content": [{"type": "text", "text": "x"}]}], [{"role": "user", "content": [{"type": "text"}]}],
    [{"role": "user", "content": "x", "mood": 1}], [TOOL], [TOOL, 5], [{"type": "function"}], [{"type": "function", "name": "add"}],
    [{"name": "add", "input_schema": {"type": "object"}}], [{"name": "a b"}], [{"type": "function", "function": {"name": "a b"}}],
    [{"type": "function", "function": {"name": "a", "parameters": {"type": "string"}}}],
    [{"type": "function", "function": {"name": "a", "strict": 1}}], [{"type": "text", "text": "x"}],
    {}, {"a": 1}, {"a": "b"}, {"5": 1}, {"5": 200}, {"05": 1}, {"5": "a"}, {"type": "text"}, {"type": "json_object"},
    {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}, {"type": "xml"},
    {"type": "json_schema", "json_schema": {"name": "", "schema": {}}}, {"type": "text", "more": 1},
    {"type": "function", "function": {"name": "add"}}, {"type": "function", "name": "add"}, {"type": "function"},
    {"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "add"}, {"type": "any", "disable_parallel_tool_use": 1},
    {"ttft_ms": 5}, {"ttft_ms": 0}, {"ttft_ms": "5"}, {"e2e_ms": 5}, {"include_usage": True}, {"include_usage": 1},
    {"include_obfuscation": False}, {"messages": []}, {str(n): "a" for n in range(70)}, {"user_id": "u"}, {"user_id": 5},
    {"regex": "a"}, {"choice": ["a"]}, {"choice": []}, {"json_object": True}, {"yaml": "a"}, {"yaml": None}, {"regex": 5},
    {"effort": "low"}, {"effort": "vast"}, {"format": {"type": "text"}}, {"format": {"type": "json_schema", "schema": {}}},
    {"format": {"type": "json_schema", "name": "a", "schema": {}}}, {"type": "enabled"}, {"type": "disabled"}, {"type": "loud"},
]  # fmt: skip


def described_values(form: dict[str, Any]) -> Iterator[Any]:
    """Values at the edges of a form, and beyond them."""
    for name in ("minimum", "exclusiveMinimum", "maximum"):
        if name in form:
            yield from (form[name], form[name] - 1, form[name] + 1, float(form[name]) + 0.5)
    yield from form.get("enum", ())
    if "maxLength" in form:
        yield from ("x" * form["maxLength"], "x" * (form["maxLength"] + 1))
    for each in form.get("anyOf", ()):
        yield from described_values(each)


def refused(parse: Parse, body: dict[str, Any]) -> ApiError | None:
    try:
        parse(body)
    except ApiError as error:
        return error
    return None


# Where more is refused than a schema can say: (field, part of the message).
RULES = (
    ("messages", "content must be"),  # an answer with calls needs none
    ("tool_choice", "names"),
    ("continue_final_message", "needs a text of the assistant"),
    ("chat_template_kwargs", "nested"),
    ("guided_", "must be"),
    ("guided_", "cannot be enforced"),
    ("structured_outputs", "cannot be enforced"),
)


@pytest.mark.parametrize("kind", PARSERS)
def test_a_field_is_described_as_it_is_checked(kind: str) -> None:
    parse, known, required, least = PARSERS[kind]
    base = {"model": "tiny", **least}
    assert refused(parse, base) is None
    whole = jsonschema.Draft202012Validator(object_form(known, required))
    differing, refusals = [], 0
    for name, field in known.items():
        needed = {} if name not in NEEDED else {key: value for key, value in NEEDED[name].items() if key in known}
        for value in (*VALUES, *described_values(field.form())):
            if (name == "model" and isinstance(value, str)) or (isinstance(value, float) and value.is_integer()):
                continue  # 404 for another model; 5.0 is an integer in JSON schema, and here only as a number
            body = base | needed | {name: value}
            error, allowed = refused(parse, body), whole.is_valid(body)
            refusals += error is not None
            if allowed == (error is None):
                continue
            if (
                allowed
                and error is not None
                and any(name.startswith(key) and part in error.message for key, part in RULES)
            ):
                continue
            differing.append(
                (name, str(value)[:60], "allowed" if allowed else "forbidden", error and error.message[:90])
            )
    assert differing == []
    assert refusals > len(known) * 20


def test_the_committed_document_is_what_the_code_says() -> None:
    assert main(["--check"]) == 0


def test_every_route_is_described_with_its_methods() -> None:
    routed = {**data_routes.routes(), **about.routes()}
    known = {path.replace("*", "{model}"): {name.lower() for name in methods} for path, methods in routed.items()}
    assert {path: set(methods) for path, methods in document()["paths"].items()} == known


def test_the_document_is_served_without_a_key(served_with_keys: Served) -> None:
    key, served_with_keys.key = served_with_keys.key, None
    try:
        given = served_with_keys.request("GET", contract.PATH_OPENAPI)
    finally:
        served_with_keys.key = key
    assert (given.status, given.headers["content-type"]) == (200, "application/json")
    assert given.json() == document()

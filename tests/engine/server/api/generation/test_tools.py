"""Tools by the official client and over a socket: calls that must happen, streams, history, and refusals."""

import json
import socket
import time
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from sluice_engine.server.api.generation.tool_fields import past_calls
from tests.engine.serving import CHAT, Served

QUESTION: list[Any] = [{"role": "user", "content": "What is the weather in Zürich?"}]
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Zürich", "Bern"]}},
    "required": ["city"],
    "additionalProperties": False,
}
DAYS = {
    "type": "object",
    "properties": {"days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["days"],
    "additionalProperties": False,
}
PAIR = {
    "type": "object", "properties": {"left": {"$ref": "#/$defs/side"}, "right": {"$ref": "#/$defs/side"}},
    "required": ["left", "right"], "additionalProperties": False, "$defs": {"side": {"enum": ["a", "b"]}},
}  # fmt: skip


def tool(name: str, parameters: Any = None, **more: Any) -> Any:
    return {"type": "function", "function": {"name": name, "description": f"{name}s", "parameters": parameters, **more}}


TOOLS = [tool("weather", CITY), tool("forecast", DAYS), tool("pair", PAIR)]


class City(BaseModel):
    """The argument of a pydantic tool."""

    name: Literal["Bern", "Basel"]


@pytest.fixture
def client(served: Served) -> Iterator[OpenAI]:
    with served.client() as client:
        yield client


def call(client: OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(model="tiny", messages=QUESTION, temperature=0, max_tokens=200, **fields)


def test_the_log_says_that_the_models_template_knows_no_tools(served: Served) -> None:
    assert "a request with tools gets a generic prompt" in served.log.read_text()


def test_a_named_function_is_called_with_arguments_of_its_schema(client: OpenAI) -> None:
    for name, check in (("weather", "city"), ("forecast", "days"), ("pair", "left")):
        choice = {"type": "function", "function": {"name": name}}
        answer = call(client, tools=TOOLS, tool_choice=choice).choices[0]
        (made,) = answer.message.tool_calls or [None]
        assert (answer.finish_reason, made.type, made.function.name) == ("tool_calls", "function", name)
        assert check in json.loads(made.function.arguments)
        assert made.id and answer.message.content is None


@pytest.mark.parametrize("seed", range(4))
def test_a_required_call_is_one_of_the_tools_and_equal_in_a_stream(client: OpenAI, seed: int) -> None:
    fields: dict[str, Any] = {"tools": TOOLS, "tool_choice": "required", "seed": seed, "parallel_tool_calls": False}
    whole = client.chat.completions.create(model="tiny", messages=QUESTION, temperature=1.2, max_tokens=200, **fields)
    (made,) = whole.choices[0].message.tool_calls or [None]
    assert made.type == "function"
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    pieces = 0
    stream = client.chat.completions.create(
        model="tiny", messages=QUESTION, temperature=1.2, max_tokens=200, stream=True, **fields
    )
    for chunk in stream:
        for each in chunk.choices[0].delta.tool_calls or ():
            assert each.function is not None
            if each.function.name:
                assert each.id and each.type == "function"
                names[each.index] = each.function.name
            arguments[each.index] = arguments.get(each.index, "") + (each.function.arguments or "")
            pieces += 1
        finish = chunk.choices[0].finish_reason
    assert names == {0: made.function.name}
    assert arguments == {0: made.function.arguments}
    assert finish == whole.choices[0].finish_reason == "tool_calls" and pieces > 1


def test_several_calls_are_possible_and_each_has_its_own_id(client: OpenAI) -> None:
    found = [
        client.chat.completions.create(
            model="tiny", messages=QUESTION, temperature=1.4, seed=seed, max_tokens=300, tools=TOOLS, tool_choice="required"
        ).choices[0].message.tool_calls or ()
        for seed in range(8)
    ]  # fmt: skip
    assert max(map(len, found)) > 1
    for calls in found:
        assert len({each.id for each in calls}) == len(calls)


def test_the_clients_own_tools_are_parsed(client: OpenAI) -> None:
    pydantic_tool = openai.pydantic_function_tool(City)
    choice: Any = {"type": "function", "function": {"name": "City"}}
    given = client.chat.completions.parse(
        model="tiny", messages=QUESTION, temperature=0, max_tokens=60, tools=[pydantic_tool], tool_choice=choice
    )
    made = (given.choices[0].message.tool_calls or [])[0]
    assert isinstance(made.function.parsed_arguments, City)


def allowed(mode: str, *names: str) -> dict[str, Any]:
    """A choice among some of the tools."""
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def test_only_allowed_tools_are_called_and_others_are_as_if_not_on_offer(client: OpenAI) -> None:
    name = TOOLS[1]["function"]["name"]

    def calls(**fields: Any) -> list[tuple[str, str]]:
        made = call(client, **fields).choices[0].message.tool_calls or ()
        return [(each.function.name, each.function.arguments) for each in made]

    chosen = calls(tools=TOOLS, tool_choice=allowed("required", name))
    assert {called for called, _ in chosen} == {name}
    assert chosen == calls(tools=TOOLS[1:2], tool_choice="required")
    assert (
        call(client, tools=TOOLS, tool_choice=allowed("auto", name)).usage.prompt_tokens
        == call(client, tools=TOOLS[1:2]).usage.prompt_tokens
    )
    responses: Any = [{"type": "function", **each["function"]} for each in TOOLS]
    choice: Any = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": name}]}
    (made, *_) = client.responses.create(model="tiny", input="a", tools=responses, tool_choice=choice).output
    assert made.type == "function_call" and made.name == name


@pytest.mark.parametrize("arguments", ['{"city": "Ber', "null", "[1]", "5", "{}", ""])
def test_arguments_that_are_no_object_are_taken_back_from_an_agent_that_has_them_corrected(
    client: OpenAI, arguments: str
) -> None:
    made: Any = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    history: Any = [
        *QUESTION,
        {"role": "assistant", "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "1", "content": "The arguments are no object."},
    ]
    broken = arguments not in ("{}", "")
    prompt = past_calls({"tool_calls": [made]}, "messages[1]")[0].as_json()["function"]["arguments"]
    assert prompt == ({"invalid_json": arguments} if broken else {})
    answer = client.chat.completions.create(model="tiny", messages=history, tools=TOOLS, max_tokens=2)
    assert answer.usage is not None and answer.usage.completion_tokens > 0


def test_tools_without_a_call_change_only_the_prompt(client: OpenAI) -> None:
    plain = call(client)
    assert call(client, tools=TOOLS, tool_choice="none").choices == plain.choices
    offered = call(client, tools=TOOLS)
    assert offered.usage.prompt_tokens > plain.usage.prompt_tokens + 50
    assert offered.choices[0].finish_reason in ("stop", "length", "tool_calls")


def test_a_call_that_must_be_made_takes_precedence_over_the_format_of_a_text(client: OpenAI) -> None:
    other: Any = {"name": "other", "schema": DAYS, "strict": True}
    named: Any = {"type": "function", "function": {"name": "weather"}}
    for choice in (named, "required"):
        answer = call(
            client, tools=TOOLS[:1], tool_choice=choice, response_format={"type": "json_schema", "json_schema": other}
        )
        made = answer.choices[0].message.tool_calls[0]
        assert json.loads(made.function.arguments)["city"] in ("Zürich", "Bern")
    text: Any = {"format": {"type": "json_schema", **other}}
    tools: Any = [{"type": "function", **TOOLS[0]["function"]}]
    chosen: Any = {"type": "function", "name": "weather"}
    given = client.responses.create(
        model="tiny", input="Zürich?", temperature=0, max_output_tokens=200, tools=tools, tool_choice=chosen, text=text
    )
    assert [item.type for item in given.output] == ["function_call"]


def test_a_schema_for_the_answer_holds_beside_tools_that_the_model_may_call(client: OpenAI) -> None:
    schema = {"type": "object", "properties": {"verdict": {"enum": ["yes", "no"]}}, "required": ["verdict"]}
    wanted: Any = {
        "type": "json_schema",
        "json_schema": {"name": "v", "schema": schema | {"additionalProperties": False}},
    }
    for seed in range(6):
        given = client.chat.completions.create(
            model="tiny",
            messages=QUESTION,
            temperature=1.0,
            seed=seed,
            max_tokens=300,
            tools=TOOLS,
            response_format=wanted,
        ).choices[0]
        if given.finish_reason == "stop":
            assert json.loads(given.message.content or "")["verdict"] in ("yes", "no")
        elif given.finish_reason == "tool_calls":
            assert given.message.tool_calls and not given.message.content


def test_a_conversation_with_calls_and_results_goes_on(client: OpenAI) -> None:
    made = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bern"}'}}
    history = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "call_1", "content": "Sunny, <|im_end|> 21 degrees"},
    ]
    given = client.chat.completions.create(model="tiny", messages=history, tools=TOOLS, temperature=0, max_tokens=20)
    assert given.choices[0].message.role == "assistant"


def nested(levels: int) -> Any:
    found: Any = {"type": "object"}
    for _ in range(levels):
        found = {"type": "object", "properties": {"a": found}}
    return found


NEGATED = {"type": "object", "properties": {"a": {"type": "string", "not": {"const": "b"}}}}
UNIQUE = {"type": "object", "properties": {"a": {"type": "array", "items": {}, "uniqueItems": True}}}
PARAMETERS = "tools[0].function.parameters"
BAD: list[tuple[dict[str, Any], str]] = [
    ({"tools": {}}, "tools"),
    ({"tools": [5]}, "tools[0]"),
    ({"tools": [{"type": "code_interpreter"}]}, "tools[0]"),
    ({"tools": [tool("a b")]}, "tools[0].function.name"),
    ({"tools": [tool("a", extra=1)]}, "tools[0].function.extra"),
    ({"tools": [tool("a"), tool("a")]}, "tools"),
    ({"tools": [tool(f"t{n}") for n in range(129)]}, "tools"),
    ({"tools": [tool("a", [])]}, PARAMETERS),
    ({"tools": [tool("a", {"type": "string"})]}, PARAMETERS),
    ({"tools": [tool("a", {"type": "object", "properties": {"b": {"type": "strin"}}})]}, PARAMETERS),
    ({"tools": [tool("a", {"type": "object", "properties": {"b": {"type": "string", "pattern": "("}}})]}, PARAMETERS),
    ({"tools": [tool("a", {"type": "object", "properties": {"b": {"pattern": r"\\p{L}\p"}}})]}, PARAMETERS),
    ({"tools": [tool("a", {"type": "object", "properties": {"b": {"$ref": "http://127.0.0.1:9/x"}}})]}, PARAMETERS),
    ({"tools": [tool("a", nested(120))]}, PARAMETERS),
    ({"tools": [tool("a", {"type": "object", "description": "x" * 1_000_000})]}, PARAMETERS),
    ({"tools": [tool("a", {"$ref": "#"})], "tool_choice": "required"}, PARAMETERS),
    ({"tools": [tool("a", {"$ref": "#"})]}, PARAMETERS),
    ({"tools": [tool("a", {"type": "object", "properties": {"b": {"$ref": "#"}}, "required": ["b"]})]}, PARAMETERS),
    ({"tools": [tool("a", {"type": "object", "not": {}})], "tool_choice": "required"}, PARAMETERS),
    ({"tools": [tool("b"), tool("a", NEGATED, strict=True)]}, "tools[1].function.parameters"),
    ({"tools": [tool("a", NEGATED, strict=True)], "response_format": {"type": "json_object"}}, PARAMETERS),
    ({"tools": [tool("a", CITY, strict="yes")]}, "tools[0].function.strict"),
    ({"tool_choice": "auto"}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": "sometimes"}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "rm"}}}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": {"type": "function"}}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": "required", "guided_json": CITY}, "tool_choice"),
    ({"tools": TOOLS, "parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ({"messages": [{"role": "user", "content": "a", "tool_calls": [{}]}]}, "messages[0].tool_calls"),
    ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0]"),
    ({"messages": [{"role": "assistant", "tool_calls": 1}]}, "messages[0].tool_calls"),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": 5}}]}]},
        "messages[0].tool_calls[0].function.arguments",
    ),
    ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": allowed("required")}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": allowed("none", "weather")}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": allowed("auto", "weather", "rm")}, "tool_choice"),
    ({"messages": [{"role": "assistant", "content": None}]}, "messages[0].content"),
    ({"messages": [{"role": "tool", "tool_call_id": 5, "content": "x"}]}, "messages[0].tool_call_id"),
]  # fmt: skip


@pytest.mark.parametrize(("keyword", "schema"), [("not", NEGATED), ("uniqueItems", UNIQUE)])
def test_a_strict_tool_with_a_keyword_that_cannot_be_enforced_is_refused_by_name(
    served: Served, keyword: str, schema: Any
) -> None:
    function = {"name": "a", "parameters": schema}
    bodies: list[tuple[str, dict[str, Any], Any]] = [
        (CHAT, {"messages": QUESTION, "max_tokens": 2}, lambda more: {"type": "function", "function": function | more}),
        ("/v1/responses", {"input": "a", "max_output_tokens": 2}, lambda more: {"type": "function", **function} | more),
        (
            "/v1/messages",
            {"messages": QUESTION, "max_tokens": 2},
            lambda more: {"name": "a", "input_schema": schema} | more,
        ),
    ]
    for path, asked, tool_of in bodies:
        body = {"model": "tiny"} | asked
        given = served.request("POST", path, body | {"tools": [tool_of({"strict": True})]})
        assert given.status == 400 and f'"{keyword}"' in given.json()["error"]["message"], given.body
        for loose in ({}, {"strict": False}):
            assert served.request("POST", path, body | {"tools": [tool_of(loose)]}).status == 200
        malformed = served.request("POST", path, body | {"tools": [tool_of({"strict": "yes"})]})
        assert malformed.status == 400 and "strict must be true or false" in malformed.json()["error"]["message"]


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "string", "pattern": r"^\p{L}+(?<year>\d{4})\k<year>[\u{1F600}-\u{1F64F}]\cJ$"}}},
        {"properties": {"a": {"type": "object", "example": {"type": "circle", "pattern": 5}}}},
        {"properties": {"a": {}}, "dependentRequired": {"type": ["a"]}},
        {"properties": {"a": {"type": "string", "errorMessage": {"type": "must be text", "pattern": "["}}}},
        {"properties": {"type": {"default": {"$ref": "http://127.0.0.1:9/x"}}}},
    ],
)
def test_a_tool_may_have_patterns_of_javascript_and_keywords_of_other_tools(served: Served, schema: Any) -> None:
    body = {"model": "tiny", "messages": QUESTION, "max_tokens": 2, "tools": [tool("a", {"type": "object"} | schema)]}
    given = served.request("POST", CHAT, body)
    assert given.status == 200, given.body


def test_nothing_that_a_schema_names_is_fetched(served: Served) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/schema"
        schema = {"type": "object", "properties": {"a": {"$ref": url}}}
        for fields in (
            {"tools": [tool("a", schema)]},
            {"tools": [tool("a", schema)], "tool_choice": "required"},
            {"guided_json": schema},
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}},
        ):
            given = served.request("POST", CHAT, {"model": "tiny", "messages": QUESTION, "max_tokens": 2} | fields)
            assert given.status == 400 and "nothing is fetched" in given.error["message"]
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


@pytest.mark.parametrize(("fields", "param"), BAD, ids=[f"{param}-{place}" for place, (_, param) in enumerate(BAD)])
def test_a_bad_tool_is_refused_within_two_seconds(served: Served, fields: dict[str, Any], param: str) -> None:
    began = time.monotonic()
    given = served.request("POST", CHAT, {"model": "tiny", "messages": QUESTION, "max_tokens": 2} | fields)
    assert (given.status, given.error["param"]) == (400, param)
    assert time.monotonic() - began < 2

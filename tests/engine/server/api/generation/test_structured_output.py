"""Structured output by the official client and over a socket: every kind, streamed, several at once, and refusals."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any, Literal

import jsonschema
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel

from tests.engine.serving import CHAT, Served

QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is a KV cache?"}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "maximum": 150, "minimum": 0},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}


class Person(BaseModel):
    """What `parse` returns."""

    name: Literal["Ada", "Grace"]
    likes: Literal["tea", "coffee"]


@pytest.fixture
def client(served: Served) -> Iterator[OpenAI]:
    with served.client() as client:
        yield client


def wanted(schema: Any) -> Any:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


def ask(client: OpenAI, **fields: Any) -> str:
    extra = {name: fields.pop(name) for name in list(fields) if name.startswith(("guided", "structured"))}
    given = client.chat.completions.create(
        model="tiny", messages=QUESTION, temperature=0, max_tokens=200, extra_body=extra, **fields
    )
    assert given.choices[0].finish_reason == "stop"
    return given.choices[0].message.content or ""


def test_a_schema_is_followed_also_in_a_stream_and_by_every_sample(client: OpenAI) -> None:
    whole = ask(client, response_format=wanted(SCHEMA))
    jsonschema.validate(json.loads(whole), SCHEMA)
    stream = client.chat.completions.create(
        model="tiny", messages=QUESTION, temperature=0, max_tokens=200, response_format=wanted(SCHEMA), stream=True
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == whole
    several = client.chat.completions.create(
        model="tiny", messages=QUESTION, temperature=1.3, seed=5, n=4, max_tokens=200, logprobs=True,
        response_format=wanted(SCHEMA),
    )  # fmt: skip
    texts = [choice.message.content or "" for choice in several.choices]
    assert len(set(texts)) > 1
    for choice, text in zip(several.choices, texts, strict=True):
        jsonschema.validate(json.loads(text), SCHEMA)
        assert choice.logprobs is not None and choice.logprobs.content


def test_the_clients_own_parsing_returns_objects(client: OpenAI) -> None:
    given = client.chat.completions.parse(
        model="tiny", messages=QUESTION, temperature=0, max_tokens=400, response_format=Person
    )
    assert isinstance(given.choices[0].message.parsed, Person)


@pytest.mark.parametrize(
    ("fields", "pattern"),
    [
        ({"guided_choice": ["yes", 'no "way"', "größer"]}, 'yes|no "way"|größer'),
        ({"guided_regex": "[A-F]{3}-[0-9]{4}"}, "[A-F]{3}-[0-9]{4}"),
        ({"guided_grammar": 'root ::= ("a" | "b") "c"'}, "[ab]c"),
        ({"guided_json": json.dumps({"const": 5})}, "5"),
        ({"guided_json": {"type": "boolean"}}, "true|false"),
        ({"structured_outputs": {"choice": ["left", "right"]}}, "left|right"),
        ({"structured_outputs": {"regex": "x{2}"}}, "xx"),
        ({"structured_outputs": {"json": {"enum": [1, 2]}, "regex": None}}, "1|2"),
        ({"structured_outputs": {"grammar": 'start: "z"'}}, "z"),
        ({"structured_outputs": {"choice": ["a"], "disable_fallback": True, "disable_any_whitespace": False}}, "a"),
        ({"guided_choice": ["a"], "guided_decoding_backend": "xgrammar", "guided_whitespace_pattern": None}, "a"),
    ],
)
def test_the_names_of_other_servers_mean_the_same(client: OpenAI, fields: dict[str, Any], pattern: str) -> None:
    assert re.fullmatch(pattern, ask(client, **fields))


def test_completions_take_the_same_fields(client: OpenAI) -> None:
    given = client.completions.create(
        model="tiny", prompt="A", temperature=0, max_tokens=20, extra_body={"guided_regex": "[0-9]{3}"}
    )
    assert re.fullmatch("[0-9]{3}", given.choices[0].text)


def test_an_output_that_is_cut_says_so(client: OpenAI) -> None:
    given = client.chat.completions.create(
        model="tiny", messages=QUESTION, temperature=0, max_tokens=3, response_format=wanted(SCHEMA)
    )
    assert given.choices[0].finish_reason == "length"


def test_rows_beside_a_grammar_are_what_they_are_without(client: OpenAI, served: Served) -> None:
    body = {"model": "tiny", "prompt": ["A replica is", "What is"], "temperature": 0, "max_tokens": 30}
    alone = served.request("POST", "/v1/completions", body).json()["choices"]
    stream = client.chat.completions.create(
        model="tiny", messages=QUESTION, temperature=0, max_tokens=400, stream=True,
        response_format=wanted({"type": "array", "items": {"type": "boolean"}, "minItems": 60, "maxItems": 60}),
    )  # fmt: skip
    next(iter(stream))
    beside = served.request("POST", "/v1/completions", body).json()["choices"]
    stream.close()
    assert [each["text"] for each in beside] == [each["text"] for each in alone]


def deep(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"type": "object", "properties": {"a": found}}
    return found


SCHEMA_PARAM = "response_format.json_schema.schema"
BAD: list[tuple[dict[str, Any], str]] = [
    ({"response_format": "json"}, "response_format"),
    ({"response_format": {"type": "xml"}}, "response_format"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}, "response_format.json_schema.name"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}}, SCHEMA_PARAM),
    ({"response_format": wanted([])}, SCHEMA_PARAM),
    ({"response_format": wanted({"type": "array", "uniqueItems": True})}, SCHEMA_PARAM),
    ({"response_format": wanted({"$ref": "http://127.0.0.1:9/schema"})}, SCHEMA_PARAM),
    ({"response_format": wanted({"type": "string", "pattern": "("})}, SCHEMA_PARAM),
    ({"response_format": wanted(deep(90))}, SCHEMA_PARAM),
    ({"response_format": wanted({"enum": ["x" * 100] * 10_000})}, SCHEMA_PARAM),
    ({"response_format": wanted(SCHEMA), "ignore_eos": True}, SCHEMA_PARAM),
    ({"response_format": wanted(SCHEMA), "min_tokens": 2}, SCHEMA_PARAM),
    ({"response_format": wanted(SCHEMA), "guided_regex": "a"}, "guided_regex"),
    ({"guided_regex": "(" * 30_000}, "guided_regex"),
    ({"guided_regex": "(" * 3_000}, "guided_regex"),
    ({"guided_regex": 5}, "guided_regex"),
    ({"guided_choice": []}, "guided_choice"),
    ({"guided_choice": ["a", 1]}, "guided_choice"),
    ({"guided_json": "{"}, "guided_json"),
    ({"guided_grammar": "root = a"}, "guided_grammar"),
    ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
    ({"structured_outputs": {"yaml": "a"}}, "structured_outputs.yaml"),
    ({"structured_outputs": {"regex": "a", "whitespace_pattern": " "}}, "structured_outputs.whitespace_pattern"),
    ({"structured_outputs": {"json": {}, "disable_any_whitespace": True}}, "structured_outputs.disable_any_whitespace"),
    ({"guided_json": {}, "guided_whitespace_pattern": "x"}, "guided_whitespace_pattern"),
    ({"guided_json": '{"properties":{"a":' * 1000 + "{}" + "}}" * 1000}, "guided_json"),
]


@pytest.mark.parametrize(("fields", "param"), BAD, ids=[f"{param}-{place}" for place, (_, param) in enumerate(BAD)])
def test_a_bad_grammar_is_refused_within_two_seconds(served: Served, fields: dict[str, Any], param: str) -> None:
    began = time.monotonic()
    given = served.request("POST", CHAT, {"model": "tiny", "messages": QUESTION, "max_tokens": 2} | fields)
    assert (given.status, given.error["param"]) == (400, param)
    assert time.monotonic() - began < 2
    assert served.admin("GET", "/livez").status == 200


KEYWORDS: list[tuple[dict[str, Any], str]] = [
    ({"type": "array", "uniqueItems": True}, "uniqueItems"),
    ({"type": "array", "contains": {}}, "contains"),
    ({"type": "array", "unevaluatedItems": False}, "unevaluatedItems"),
    ({"not": {"type": "string"}}, "not"),
    ({"if": {}, "then": {}}, "if"),
    ({"type": "object", "propertyNames": {"pattern": "a"}}, "propertyNames"),
    ({"type": "object", "dependentRequired": {"a": ["b"]}}, "dependentRequired"),
    ({"type": "string", "format": "klingon"}, "klingon"),
    ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
    ({"$ref": "#/$defs/absent"}, "absent"),
    ({"$ref": "https://example.com/schema"}, "nothing is fetched"),
]


@pytest.mark.parametrize(("schema", "named"), KEYWORDS, ids=[named for _, named in KEYWORDS])
def test_a_keyword_that_cannot_be_enforced_is_named_for_answers_and_for_calls(
    served: Served, schema: dict[str, Any], named: str
) -> None:
    parameters = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    for fields, param in (
        ({"response_format": wanted(schema)}, SCHEMA_PARAM),
        ({"tools": [tool], "tool_choice": "required"}, "tools[0].function.parameters"),
    ):
        given = served.request("POST", CHAT, {"model": "tiny", "messages": QUESTION, "max_tokens": 2} | fields)
        assert (given.status, given.error["param"]) == (400, param)
        assert named in given.error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_character_that_the_length_limit_cuts_is_not_sent(client: OpenAI, stream: bool) -> None:
    texts = [cut(client, "a🙂", tokens, stream) for tokens in range(1, 7)]
    assert texts[-1] == ("a🙂", "stop")
    assert texts.count(("a", "length")) > 1  # after the letter, and within the bytes that follow it
    assert {text for text, _ in texts} <= {"", "a", "a🙂"}


def cut(client: OpenAI, text: str, tokens: int, stream: bool) -> tuple[str, str | None]:
    """Text and finish reason of a completion that must be `text` within a number of tokens."""
    extra = {"structured_outputs": {"choice": [text]}}
    if not stream:
        (choice,) = client.completions.create(model="tiny", prompt="Hi", max_tokens=tokens, extra_body=extra).choices
        return choice.text, choice.finish_reason
    chunks = client.completions.create(model="tiny", prompt="Hi", max_tokens=tokens, extra_body=extra, stream=True)
    choices = [chunk.choices[0] for chunk in chunks]
    return "".join(choice.text for choice in choices), choices[-1].finish_reason

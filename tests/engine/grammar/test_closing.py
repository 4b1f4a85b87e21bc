"""Which objects of a schema are closed, and that nothing else about what it allows changes."""

import json
from typing import Any

import llguidance
import pytest

from sluice_engine.grammar import Grammar, GrammarInvalid
from sluice_engine.grammar.closing import closed
from sluice_engine.grammar.compiler import check, source_of
from sluice_engine.tools import Tool
from sluice_engine.tools.definition import ToolChoice
from sluice_engine.tools.schemas import answer_or_calls, grammar_of


def properties(*names: str, **fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "integer"} for name in names}} | fields


def allows(grammar: Grammar, text: str) -> bool:
    """Whether the text is a whole output of the grammar."""
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), source_of(grammar))
    assert not matcher.is_error(), matcher.get_error()
    written = text.encode()
    return bool(matcher.try_consume_tokens(list(written)) == len(written) and matcher.is_accepting())


def of(schema: dict[str, Any]) -> Grammar:
    return Grammar("json_schema", json.dumps(schema))


A, B = properties("a"), properties("b")
REFS: dict[str, Any] = {"$defs": {"a": A, "b": B}}
CLOSED: list[tuple[dict[str, Any], str, str]] = [
    (A, '{"a": 1}', '{"a": 1, "x": 2}'),
    (A, "{}", '{"x": 2}'),
    (properties("a", required=["a"]), '{"a": 1}', '{"a": 1, "x": 2}'),
    ({"type": "array", "items": A}, '[{"a": 1}]', '[{"x": 1}]'),
    ({"type": "object", "properties": {"o": A}}, '{"o": {"a": 1}}', '{"o": {"x": 1}}'),
    ({"anyOf": [A, {"type": "null"}]}, "null", '{"x": 1}'),
    ({"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], **REFS}, '{"b": 1}', '{"x": 1}'),
    ({"allOf": [{"$ref": "#/$defs/a"}], "title": "A", **REFS}, '{"a": 1}', '{"x": 1}'),
    (properties("a") | {"properties": {"n": {"$ref": "#"}}}, '{"n": {"n": {}}}', '{"n": {"x": {}}}'),
]  # fmt: skip
OPEN: list[tuple[dict[str, Any], str]] = [
    ({"type": "object"}, '{"x": 1}'),
    ({"type": "object", "properties": {}}, '{"x": 1}'),
    (properties("a", additionalProperties=True), '{"a": 1, "x": 2}'),
    (properties("a", additionalProperties={"type": "integer"}), '{"x": 2}'),
    (properties("a", required=["x"]), '{"x": 2}'),
    (properties("a", patternProperties={"^x$": {"type": "integer"}}), '{"x": 2}'),
    ({"allOf": [A, B]}, '{"a": 1, "b": 2}'),
    ({"allOf": [{"$ref": "#/$defs/a"}, B], **REFS}, '{"a": 1, "b": 2}'),
    ({"$ref": "#/$defs/a", "properties": {"b": {"type": "integer"}}, **REFS}, '{"a": 1, "b": 2}'),
    (A | {"anyOf": [properties("b", required=["b"]), properties("c", required=["c"])]}, '{"a": 1, "b": 2}'),
    ({"allOf": [{"properties": {"o": A}}, {"properties": {"o": B}}]}, '{"o": {"a": 1, "b": 2}}'),
    ({"type": "object", "properties": {"o": {"$ref": "#/$defs/a"}, "p": {"allOf": [{"$ref": "#/$defs/a"}, B]}}, **REFS}, '{"p": {"a": 1, "b": 2}}'),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "inside", "outside"), CLOSED, ids=[json.dumps(each[0]) for each in CLOSED])
def test_an_object_with_properties_has_no_others(schema: dict[str, Any], inside: str, outside: str) -> None:
    check(of(schema))
    assert allows(of(schema), inside)
    assert not allows(of(schema), outside)


@pytest.mark.parametrize(("schema", "text"), OPEN, ids=[json.dumps(each[0]) for each in OPEN])
def test_an_object_that_says_more_or_is_combined_stays_open(schema: dict[str, Any], text: str) -> None:
    check(of(schema))
    assert allows(of(schema), text)


def test_names_and_values_that_look_like_a_schema_are_none() -> None:
    value = {"properties": {"a": 1}}
    schema = {"type": "object", "properties": {"properties": {"const": value}}, "additionalProperties": False}
    assert closed(schema) == schema


def test_a_schema_whose_parts_are_not_followed_stays_as_it_is() -> None:
    for name, value in (("not", {}), ("if", {}), ("$id", "x"), ("$ref", "#/absent"), ("$ref", "#anchor")):
        schema = {"type": "array", "items": [A, {name: value}]}
        assert closed(schema) is schema


def test_branches_that_overlap_are_refused_as_before() -> None:
    with pytest.raises(GrammarInvalid, match="oneOf"):
        check(of({"oneOf": [A, B]}))
    kinds = [properties(name, required=["kind"]) for name in ("a", "b")]
    for kind in kinds:
        kind["properties"]["kind"] = {"const": next(iter(kind["properties"]))}
    union = of({"oneOf": kinds})
    check(union)
    assert allows(union, '{"a": 1, "kind": "a"}')
    assert not allows(union, '{"a": 1, "kind": "a", "x": 1}')


def test_arguments_of_functions_are_closed() -> None:
    tools = (Tool("f", "", A), Tool("g", "", {"type": "object", "properties": {}}))
    required = grammar_of(ToolChoice(tools, "required"))
    assert required is not None
    assert allows(required, '[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]')
    assert not allows(required, '[{"name": "f", "arguments": {"x": 1}}]')
    assert not allows(required, '[{"name": "g", "arguments": {"x": 1}}]')
    either = answer_or_calls(of(B), ToolChoice(tools, "auto"), "hermes")
    assert allows(either, '{"b": 1}')
    assert not allows(either, '{"x": 1}')


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        (r"\d{2}", "12", "१२"),
        (r"\w+", "a_1", "é"),
        (r"[\d.]+", "1.2", "१"),
        (r"[\w-]+", "a-1", "é"),
        (r"[^\d]", "a", "१"),
        (r"[^]\d]", "a", "]"),
        (r"[]\d]", "]", "१"),
        (r"\D", "a", "१"),
        (r"\\d", "\\d", "\\1"),
        (r"\[\d]", "[1]", "[१]"),
        (r"[[:digit:]]\d", "11", "1१"),
    ],
)
def test_digits_and_word_characters_of_a_regex_are_ascii(pattern: str, inside: str, outside: str) -> None:
    assert allows(Grammar("regex", pattern), inside)
    assert not allows(Grammar("regex", pattern), outside)

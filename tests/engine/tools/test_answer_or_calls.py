"""A schema for the answer beside tools: an output is an answer that follows the schema, or calls that follow theirs."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sluice_engine.grammar import Grammar, GrammarInvalid, check_bounds
from sluice_engine.grammar.compiler import check
from sluice_engine.text import load_text_model
from sluice_engine.tools import ArgumentsDelta, Dialect, TextDelta, Tool, ToolChoice, parser_of
from sluice_engine.tools.schemas import answer_or_calls, arguments_grammar, grammar_of
from tests.engine.grammar.test_grammar import Walker

ANSWER: dict[str, Any] = {
    "type": "object",
    "properties": {"verdict": {"enum": ["yes", "no"]}},
    "required": ["verdict"],
    "additionalProperties": False,
}
SIDE: dict[str, Any] = {
    "type": "object", "properties": {"side": {"$ref": "#/$defs/side"}}, "required": ["side"], "additionalProperties": False,
    "$defs": {"side": {"enum": ["left ::=", "right"]}},
}  # fmt: skip
CHOICE = ToolChoice((Tool("turn", "", SIDE), Tool("stop")), "auto")


@pytest.mark.parametrize("dialect", ["hermes", "llama"])
def test_every_output_is_an_answer_or_calls(tiny_model: Path, dialect: Dialect) -> None:
    text = load_text_model(tiny_model)
    walker = Walker(tiny_model, text)
    grammar = answer_or_calls(Grammar("json_schema", json.dumps(ANSWER)), CHOICE, dialect)
    check(grammar)
    kinds = set()
    for seed in range(24):
        tokens, ended = walker.walk(grammar, seed)
        if not ended:
            continue
        parser = parser_of(dialect, CHOICE.names)
        events = parser.feed(text.decode(tokens)) + parser.finish()
        arguments = "".join(event.text for event in events if isinstance(event, ArgumentsDelta))
        answer = "".join(event.text for event in events if isinstance(event, TextDelta))
        if answer:
            jsonschema.validate(json.loads(answer), ANSWER)
        kinds.add("answer" if answer else "calls")
        assert bool(answer) != bool(arguments)
    assert kinds == {"answer", "calls"}


def test_a_tool_with_keywords_that_cannot_be_enforced_may_be_offered() -> None:
    tools = ToolChoice((Tool("a", "", {"type": "object", "not": {}}),), "auto")
    check(answer_or_calls(Grammar("json_schema", json.dumps(ANSWER)), tools, "hermes"))


@pytest.mark.parametrize("dialect", ["hermes", "llama"])
def test_a_strict_tools_arguments_follow_its_schema(tiny_model: Path, dialect: Dialect) -> None:
    text = load_text_model(tiny_model)
    walker = Walker(tiny_model, text)
    choice = ToolChoice((Tool("turn", "", SIDE, strict=True),), "auto", parallel=False)
    grammar = answer_or_calls(Grammar("json_schema", json.dumps(ANSWER)), choice, dialect)
    turns = 0
    for seed in range(24):
        tokens, ended = walker.walk(grammar, seed)
        parser = parser_of(dialect, frozenset({"turn"}), parallel=False)
        events = parser.feed(text.decode(tokens)) + parser.finish()
        arguments = "".join(event.text for event in events if isinstance(event, ArgumentsDelta))
        if ended and arguments and not any(isinstance(event, TextDelta) for event in events):
            jsonschema.validate(json.loads(arguments), SIDE)
            turns += 1
    assert turns > 1


def test_a_strict_tool_with_keywords_that_cannot_be_enforced_is_no_grammar() -> None:
    tools = ToolChoice((Tool("a", "", {"type": "object", "not": {}}, strict=True), Tool("b")), "auto")
    with pytest.raises(GrammarInvalid, match="not"):
        check(answer_or_calls(Grammar("json_schema", json.dumps(ANSWER)), tools, "hermes"))


def test_where_calls_are_no_text_only_the_answer_is_possible() -> None:
    answer = Grammar("json_schema", json.dumps(ANSWER))
    assert answer_or_calls(answer, CHOICE, "mistral") == answer
    regex = Grammar("regex", "a+")
    assert answer_or_calls(regex, CHOICE, "hermes") == regex


@pytest.mark.parametrize("parameters", [{}, {"properties": {"a": {"type": "boolean"}}}, {"description": "anything"}])
def test_arguments_are_an_object_whether_the_schema_says_so_or_not(parameters: dict[str, Any]) -> None:
    assert json.loads(arguments_grammar(Tool("a", "", parameters)).text) == {"type": "object"} | parameters


@pytest.mark.parametrize(
    "more", [{}, {"title": "aArguments", "required": []}, {"$schema": "https://json-schema.org/x"}]
)
def test_a_function_that_lists_no_property_takes_no_argument(more: dict[str, Any]) -> None:
    schema = json.loads(arguments_grammar(Tool("a", "", {"type": "object", "properties": {}} | more)).text)
    assert schema == {"type": "object", "properties": {}, "additionalProperties": False}


@pytest.mark.parametrize("more", [{"additionalProperties": True}, {"required": ["b"]}])
def test_a_function_that_allows_more_than_it_lists_keeps_its_schema(more: dict[str, Any]) -> None:
    parameters = {"type": "object", "properties": {}} | more
    assert json.loads(arguments_grammar(Tool("a", "", parameters)).text) == parameters


def test_required_calls_follow_a_schema_that_has_an_id_and_values_that_look_like_references() -> None:
    link = {"$ref": "#/here"}
    parameters = {
        "$id": "https://example.com/a", "$defs": {"const": {"type": "boolean"}}, "type": "object",
        "properties": {"const": {"$ref": "#/$defs/const"}, "link": {"const": link}},
    }  # fmt: skip
    grammar = grammar_of(ToolChoice((Tool("a", "", parameters),), "required"))
    assert grammar is not None
    check(grammar)
    moved = json.loads(grammar.text)["$defs"]["0"]
    assert moved["properties"] == {"const": {"$ref": "#/$defs/0/$defs/const"}, "link": {"const": link}}


@pytest.mark.parametrize("mode", ["required", "auto"])
def test_descriptions_do_not_count_towards_the_size_of_a_grammar_of_calls(mode: Any) -> None:
    described = {"type": "string", "description": "word " * 200, "default": "word " * 200, "title": "Word"}
    parameters = {"type": "object", "properties": {"description": described, "title": {"const": {"title": "x"}}}}
    choice = ToolChoice(tuple(Tool(f"a{n}", "", parameters, strict=True) for n in range(100)), mode)
    grammar = grammar_of(choice) or answer_or_calls(Grammar("json_schema", json.dumps(ANSWER)), choice, "hermes")
    check_bounds(grammar)
    check(grammar)
    assert (
        "word" not in grammar.text and grammar.text.count('"description"') == grammar.text.count('"title": "x"') == 100
    )

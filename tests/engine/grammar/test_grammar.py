"""What a grammar may be, what is refused and why, and that every output that a matcher ends is one of its language."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice_engine.grammar import Grammar, GrammarInvalid, check_bounds
from sluice_engine.grammar.compiler import GrammarCompiler, check
from sluice_engine.grammar.keywords import without_neutral
from sluice_engine.sampling import Sampler
from sluice_engine.sampling_params import SamplingParams
from sluice_engine.text import TextModel, load_text_model

MOST = 600  # tokens of a random walk


def schema(**fields: Any) -> Grammar:
    return Grammar("json_schema", json.dumps(fields))


def nested(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        found = {"type": "object", "properties": {"a": found}}
    return found


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        (schema(type="array", uniqueItems=True), "uniqueItems"),
        (schema(**{"not": {"type": "string"}}), "not"),
        (schema(**{"if": {}, "then": {}}), "if"),
        (schema(type="string", format="klingon"), "klingon"),
        (schema(type="strin"), "strin"),
        (schema(type="string", pattern="["), "unclosed"),
        (schema(type="string", pattern="(?=a)b"), "look-around"),
        (schema(**{"$ref": "http://example.com/schema.json"}), "nothing is fetched"),
        (schema(**{"$ref": "other.json#/a"}), "nothing is fetched"),
        (schema(**{"$ref": "#"}), "within itself"),
        (schema(type="object", properties={"a": {"$ref": "#"}}, required=["a"]), "within itself"),
        (schema(**{"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"allOf": [{"$ref": "#"}]}}}), "within itself"),
        (schema(type="array", minItems=1, items={"$ref": "#"}), "within itself"),
        (schema(**{"$ref": "#/$defs/absent"}), "absent"),
        (schema(**{"$ref": "#absent"}), "absent"),
        (
            schema(**{"$anchor": "a", "type": "object", "properties": {"b": {"$ref": "#a"}}, "required": ["b"]}),
            "within itself",
        ),
        (schema(**nested(80)), "deeper"),
        (schema(enum=["x" * 70_000]), "characters"),
        (schema(**{"x-guidance": {"lenient": True}, "not": {}}), "not"),
        (Grammar("json_schema", "false"), ""),
        (Grammar("regex", "(" * 4000 + ")" * 4000), "nested"),
        (Grammar("regex", "a" * 9000), "characters"),
        (Grammar("regex", "(?<=a)b"), "look-around"),
        (Grammar("ebnf", 'root ::= root "a"'), "no output"),
        (Grammar("ebnf", "nonsense ::::"), ""),
        (Grammar("ebnf", " "), "empty"),
    ],
)
def test_what_cannot_be_enforced_is_refused_by_name(grammar: Grammar, words: str) -> None:
    with pytest.raises(GrammarInvalid) as caught:
        check_bounds(grammar)
        check(grammar)
    assert words in str(caught.value) and len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "grammar",
    [
        schema(type="object", properties={"a": {"$ref": "#"}}),
        schema(type="object", properties={"a": {"type": ["object", "null"]}}, required=["a"]),
        schema(type="object", properties={"a": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, required=["a"]),
        schema(type="array", items={"$ref": "#"}),
        schema(**{"$ref": "#a", "$defs": {"a": {"$anchor": "a", "type": "array", "items": {"$ref": "#a"}}}}),
        schema(**{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"type": "integer"}}}),
    ],
)
def test_recursion_that_ends_is_accepted(grammar: Grammar) -> None:
    check_bounds(grammar)
    check(grammar)


@pytest.mark.parametrize(
    "grammar",
    [
        schema(type="array", items={"type": "integer"}, uniqueItems=False),
        schema(type="object", propertyNames={"type": "string"}, additionalProperties={"type": "integer"}),
        schema(type="object", properties={"uniqueItems": {"const": False}}, dependentRequired={}),
        schema(type="boolean", default={"$ref": "http://example.com/schema.json"}),
        schema(const={"$ref": "http://example.com/schema.json", "uniqueItems": False}),
    ],
)
def test_what_demands_nothing_is_accepted(grammar: Grammar) -> None:
    check_bounds(grammar)
    check(grammar)


def test_a_keyword_that_demands_nothing_is_kept_where_it_is_a_name_or_data() -> None:
    with pytest.raises(GrammarInvalid, match="uniqueItems"):
        check(schema(type="object", properties={"uniqueItems": {"type": "array", "uniqueItems": True}}))
    given = {"properties": {"uniqueItems": False}, "enum": [{"uniqueItems": False}]}
    assert without_neutral(given) == given


@pytest.fixture(scope="session")
def text(tiny_model: Path) -> TextModel:
    return load_text_model(tiny_model)


@pytest.fixture(scope="session")
def walker(tiny_model: Path, text: TextModel) -> "Walker":
    return Walker(tiny_model, text)


class Walker:
    """A sampler over random logits: any model could write what it writes."""

    def __init__(self, folder: Path, text: TextModel) -> None:
        self.width = json.loads((folder / "config.json").read_text())["vocab_size"]
        self.eos = set(text.stop_token_ids)
        self.text = text
        self.sampler = Sampler(2, self.width, torch.device("cpu"), GrammarCompiler(folder, self.width, self.eos))

    def walk(self, grammar: Grammar, seed: int, begun: tuple[int, ...] = ()) -> tuple[list[int], bool]:
        """Output tokens without the last one, and whether it ended by itself. `begun`: resumed after these."""
        params = SamplingParams(temperature=1.0, seed=seed, grammar=grammar, max_tokens=MOST)
        self.sampler.join(0, params, (7, *begun), 1)
        tokens, slots = list(begun), np.zeros(1, dtype=np.int64)
        while len(tokens) < MOST:
            noise = np.random.default_rng((seed, len(tokens))).normal(size=(1, self.width)).astype(np.float32)
            sampled = self.sampler.sample(torch.from_numpy(noise), slots, np.array([len(tokens)]))
            assert sampled.faults == {}
            (token,) = sampled.tokens
            if token in self.eos:
                return tokens, True
            tokens.append(token)
        return tokens, False


LEAVES = st.one_of(
    st.builds(lambda most: {"type": "string", "maxLength": most}, st.integers(0, 12)),
    st.just({"type": "string", "pattern": "^[a-c]{1,4}$"}),
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.builds(
        lambda a, b: {"type": "integer", "minimum": a, "maximum": a + b}, st.integers(-50, 50), st.integers(0, 90)
    ),
    st.just({"type": "number", "minimum": 0, "maximum": 10}),
    st.builds(lambda values: {"enum": values}, st.lists(st.text(max_size=5) | st.integers(), min_size=1, max_size=4)),
    st.builds(lambda value: {"const": value}, st.text(max_size=8)),
    st.sampled_from([{"type": "string", "format": "date"}, {"type": ["integer", "null"], "minimum": 3, "maximum": 9}]),
)


def objects(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    names = st.sampled_from(["name", "größe", 'quo"te', "a b", "x", ""])

    def build(properties: dict[str, Any], optional: int, more: dict[str, bool]) -> dict[str, Any]:
        required = sorted(properties)[optional:]
        return {"type": "object", "properties": properties, "required": required, **more}

    more = st.sampled_from([{"additionalProperties": False}, {}])
    return st.builds(build, st.dictionaries(names, inner, max_size=3), st.integers(0, 2), more)


def lists(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda items, least, more: {"type": "array", "items": items, "minItems": least, "maxItems": least + more},
        inner, st.integers(0, 2), st.integers(0, 2),
    )  # fmt: skip


SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: objects(inner) | lists(inner) | st.builds(lambda each: {"anyOf": each}, st.lists(inner, min_size=1, max_size=3)),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SCHEMAS, st.integers(0, 2**32))
def test_every_finished_output_validates_against_its_schema(walker: Walker, schema: dict[str, Any], seed: int) -> None:
    grammar = Grammar("json_schema", json.dumps(schema))
    check(grammar)
    tokens, ended = walker.walk(grammar, seed)
    if ended:
        jsonschema.validate(json.loads(walker.text.decode(tokens)), schema)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SCHEMAS, st.integers(0, 2**32), st.floats(0, 1))
def test_a_preempted_request_continues_as_if_nothing_had_been(
    walker: Walker, schema: dict[str, Any], seed: int, share: float
) -> None:
    grammar = Grammar("json_schema", json.dumps(schema))
    tokens, ended = walker.walk(grammar, seed)
    begun = tuple(tokens[: int(share * len(tokens))])
    assert walker.walk(grammar, seed, begun) == (tokens, ended)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=5), st.integers(0, 2**32))
def test_a_choice_is_one_of_its_strings(walker: Walker, choices: list[str], seed: int) -> None:
    tokens, ended = walker.walk(Grammar("choice", json.dumps(choices)), seed)
    assert ended and walker.text.decode(tokens) in choices


@pytest.mark.parametrize("pattern", ["[A-F]{3}-[0-9]{4}", "(yes|no)!?", "a{2,5}b?", r"[0-9]+(\.[0-9]{1,2})?"])
def test_a_regex_matches_the_whole_output(walker: Walker, pattern: str) -> None:
    outputs = [walker.walk(Grammar("regex", pattern), seed) for seed in range(8)]
    assert any(ended for _, ended in outputs)
    for tokens, ended in outputs:
        assert not ended or re.fullmatch(pattern, walker.text.decode(tokens))


def test_gbnf_and_lark_are_one_kind(walker: Walker) -> None:
    for source in ('root ::= "x" [0-9] [0-9] "y"', 'start: "x" DIGIT DIGIT "y"\nDIGIT: /[0-9]/'):
        tokens, ended = walker.walk(Grammar("ebnf", source), 3)
        assert ended and re.fullmatch("x[0-9]{2}y", walker.text.decode(tokens))


def test_whitespace_between_values_is_bounded(walker: Walker) -> None:
    tokens, _ = walker.walk(schema(type="array", items={"type": "boolean"}, minItems=30, maxItems=30), 5)
    assert max(map(len, re.findall(r"\s+", walker.text.decode(tokens))), default=0) <= 25

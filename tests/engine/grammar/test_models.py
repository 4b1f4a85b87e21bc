"""Random schemas with both models: every output that ended validates, of the models' own choice and of random logits."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sluice_engine import LLM, SamplingParams
from sluice_engine.grammar import Grammar, literals
from sluice_engine.grammar.compiler import check
from sluice_engine.pulled import pull
from sluice_engine.text import TextModel, load_text_model
from tests.engine.grammar.test_grammar import SCHEMAS, Walker

MODELS = ("tiny", "smollm2")
BATCH = 20  # schemas that one engine follows at once
TOKENS = 96


@pytest.fixture(scope="session")
def smollm2() -> Path:
    return pull("smollm2")


@pytest.fixture(scope="module", params=MODELS)
def folder(request: pytest.FixtureRequest) -> Path:
    name = "tiny_model" if request.param == "tiny" else request.param
    return Path(request.getfixturevalue(name))


@pytest.fixture(scope="module")
def llm(folder: Path) -> LLM:
    return LLM(folder, threads=1, kv_size=128 << 20, max_num_seqs=BATCH, max_model_length=512)


@pytest.fixture(scope="module")
def walker(folder: Path) -> Walker:
    return Walker(folder, load_text_model(folder))


@settings(max_examples=1)
@given(st.lists(SCHEMAS, min_size=BATCH, max_size=BATCH), st.integers(0, 2**31))
def test_what_a_model_writes_validates(llm: LLM, folder: Path, schemas: list[dict[str, Any]], seed: int) -> None:
    text = load_text_model(folder)
    schemas = [each for each in schemas if writable(text, each)]
    params = [
        SamplingParams(temperature=float(place % 3) / 2, seed=seed + place, max_tokens=TOKENS, grammar=_grammar(schema))
        for place, schema in enumerate(schemas)
    ]
    prompts = [f"JSON that follows the schema {json.dumps(schema)}:\n"[-600:] for schema in schemas]
    finished = 0
    for result, schema in zip(llm.generate(prompts, params, progress=False), schemas, strict=True):
        assert result.finish_reason in ("stop", "length"), result
        if result.finish_reason == "stop":
            finished += 1
            jsonschema.validate(json.loads(result.text), schema)
    assert finished >= len(schemas) // 2


@settings(max_examples=20)
@given(SCHEMAS, st.integers(0, 2**32))
def test_what_random_logits_write_validates(walker: Walker, schema: dict[str, Any], seed: int) -> None:
    assume(writable(walker.text, schema))
    tokens, ended = walker.walk(_grammar(schema), seed)
    if ended:
        jsonschema.validate(json.loads(walker.text.decode(tokens)), schema)


def writable(text: TextModel, schema: dict[str, Any]) -> bool:
    """What the server asks before a grammar is accepted."""
    return not any(map(text.unwritable, literals(Grammar("json_schema", json.dumps(schema)))))


def test_characters_that_no_token_spells_are_found(smollm2: Path, tiny_model: Path) -> None:
    assert load_text_model(smollm2).unwritable("a🎉\U00050000") == "\U00050000"
    assert load_text_model(smollm2).unwritable("größer 日本 🎉") == ""
    assert load_text_model(tiny_model).unwritable("größer 日本 🎉") == ""


def _grammar(schema: dict[str, Any]) -> Grammar:
    grammar = Grammar("json_schema", json.dumps(schema))
    check(grammar)
    return grammar

"""Grammars that a server cannot take, over a socket: the vocabulary cannot spell them, or the checker is busy."""

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest

from sluice import contract
from sluice_engine.grammar.checker import GrammarChecker
from sluice_engine.pulled import pull
from tests.engine.server.api.generation.test_handlers import Desk, desk_of

QUESTION: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}
UNSPELLABLE = "\U00050000"  # no token of SmolLM2's vocabulary has the first byte of its UTF-8


@pytest.fixture
async def smollm2() -> AsyncIterator[Desk]:
    async for desk in desk_of(pull("smollm2"), "generate"):
        yield desk


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"structured_outputs": {"choice": ["yes", UNSPELLABLE]}}, "structured_outputs.choice"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {
                        "name": "mark",
                        "schema": {"type": "object", "properties": {"x": {"const": UNSPELLABLE}}},
                    },
                }
            },
            "response_format.json_schema.schema",
        ),
        (
            {
                "tools": [
                    {"type": "function", "function": {"name": "mark", "parameters": {"properties": {UNSPELLABLE: {}}}}}
                ],
                "tool_choice": "required",
            },
            "tools[0].function.parameters",
        ),
    ],
)
async def test_a_character_that_the_vocabulary_cannot_spell_is_named(
    smollm2: Desk, fields: dict[str, Any], param: str
) -> None:
    status, body = await smollm2.post(contract.PATH_CHAT_COMPLETIONS, QUESTION | fields)
    error = orjson.loads(body)["error"]
    assert (status, error["param"]) == (400, param)
    assert "cannot spell the character U+50000" in error["message"]
    assert smollm2.client.sent == []


async def test_a_request_whose_grammar_waits_too_long_for_others_may_come_again(smollm2: Desk) -> None:
    await smollm2.serving.grammars.stop()
    smollm2.serving.grammars = GrammarChecker(wait_seconds=0.0)
    fields = {"structured_outputs": {"choice": ["yes", "no"]}}
    status, body = await smollm2.post(contract.PATH_CHAT_COMPLETIONS, QUESTION | fields)
    assert (status, orjson.loads(body)["error"]["code"]) == (503, "grammar_check_busy")
    assert smollm2.client.sent == []

"""What every Python driver shares: a case per feature, and one JSON line per outcome. Needs the standard library only.

A driver ends with `run()`. The first line lists all features, so that the runner sees which had no outcome.
"""

import asyncio
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

CHAT_URL = os.environ["CHAT_URL"]  # a chat model that was trained; model name CHAT
REASON_URL = os.environ["REASON_URL"]  # the same weights with the template of a reasoning model; model name REASON
EMBED_URL = os.environ["EMBED_URL"]
RERANK_URL = os.environ["RERANK_URL"]
KEY = os.environ["OPENAI_API_KEY"]
LIMITED_KEY = os.environ["LIMITED_KEY"]  # a key with one request per two seconds
CHAT, REASON, EMBED, RERANK = "smollm2", "reasoner", "minilm", "reranker"
LONGEST_DETAIL = 4000  # of an agent's transcript

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}

_cases: dict[str, Callable[[], Any]] = {}
_lacking: dict[str, str] = {}


def case(feature: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Registers the function, plain or async, as the case of a feature. It raises if the feature does not work."""

    def register(function: Callable[[], Any]) -> Callable[[], Any]:
        _cases[feature] = function
        return function

    return register


def lacks(feature: str, why: str) -> None:
    """Says that this client has no such feature, or that a fault of its own stops it, with the reason."""
    _lacking[feature] = why


def run() -> None:
    """Runs all cases in their order; those that are named on the command line, if any."""
    chosen = {name: function for name, function in _cases.items() if not sys.argv[1:] or name in sys.argv[1:]}
    print(json.dumps({"planned": list(chosen)}), flush=True)
    for feature, why in _lacking.items():
        print(json.dumps({"feature": feature, "ok": None, "detail": why}), flush=True)
    with asyncio.Runner() as loop:  # one for all, because a client may keep its connections
        for feature, function in chosen.items():
            print(json.dumps({"feature": feature, **_outcome(function, loop)}), flush=True)


def _outcome(function: Callable[[], Any], loop: asyncio.Runner) -> dict[str, Any]:
    try:
        detail = loop.run(function()) if inspect.iscoroutinefunction(function) else function()
        return {"ok": True, "detail": str(detail or "")[:LONGEST_DETAIL]}
    except Exception as error:  # noqa: BLE001  # whatever a client raises, its case failed
        traceback.print_exc()
        return {"ok": False, "detail": f"{type(error).__name__}: {error}"[:LONGEST_DETAIL]}


def weather_tool() -> dict[str, Any]:
    """A function as the chat API describes it."""
    function = {"name": "get_weather", "description": "The current weather of a city.", "parameters": CITY}
    return {"type": "function", "function": function}


# SmolLM2 has 135 M parameters and does not choose tools on its own; it copies what it is told to. With these words each
# token of a call leads by 0.5 nats or more, in bfloat16 and in float32, so that the processor's rounding changes none.
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
ASK_FOR_A_CALL = f"Copy this text, word for word. Your answer must begin with <tool_call>.\n\n{CALL}"
# Behind a prompt that opens the reasoning, each token of this leads by 1.0 nats or more.
THOUGHT, ANSWER = "I think of the sky.", "The colour is blue."
ASK_FOR_REASONING = (
    f"Copy this text, word for word. Your answer must begin with <think>.\n\n<think>\n{THOUGHT}\n</think>\n{ANSWER}"
)

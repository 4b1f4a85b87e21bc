"""What is fuzzed, each with valid inputs to begin with and what must hold for every input."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from sluice.httpapi.body import parse_object
from sluice_engine import messages
from sluice_engine.grammar import Grammar
from sluice_engine.limits import Limits
from sluice_engine.messages import decode_from_engine, decode_to_engine, encode_frame
from sluice_engine.request import TokenLogprob
from sluice_engine.sampling_params import SamplingParams
from sluice_engine.server.api import embeddings
from sluice_engine.server.api.anthropic import translate as anthropic
from sluice_engine.server.api.generation import request_schema
from sluice_engine.server.api.responses import translate as responses
from sluice_engine.server.errors import ApiError, BadRequest, NotFound
from sluice_engine.text.reasoning import ReasoningSplitter
from sluice_engine.tools import ArgumentsDelta, CallBegun, Dialect, TextDelta, parser_of

NAMES: Final = frozenset({"add", "turn"})
SCHEMA: Final = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOL: Final = {
    "type": "function",
    "function": {"name": "add", "description": "adds", "parameters": SCHEMA, "strict": True},
}
CALL: Final = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
MESSAGES: Final = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "hi"}]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "2"},
]
CHAT: Final = {
    "model": "tiny", "messages": MESSAGES, "tools": [TOOL], "tool_choice": "auto", "n": 2, "logprobs": True, "top_logprobs": 3,
    "stop": ["a"], "seed": 1, "temperature": 0.5, "top_p": 0.9, "logit_bias": {"5": 1}, "max_tokens": 5, "stream": True,
    "stream_options": {"include_usage": True}, "metadata": {"a": "b"}, "slo": {"ttft_ms": 5}, "bad_words": ["x"],
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}, "stop_token_ids": [3],
}  # fmt: skip
COMPLETION: Final = {
    "model": "tiny",
    "prompt": ["a", "b"],
    "echo": True,
    "best_of": 3,
    "guided_regex": "a+",
    "user": "u",
}
RESPONSES: Final = {
    "model": "tiny", "input": [{"role": "user", "content": "hi"}, {"type": "function_call", "call_id": "c", "name": "add",
    "arguments": "{}"}, {"type": "function_call_output", "call_id": "c", "output": "2"}], "text": {"format": {"type": "text"}},
    "tools": [{"type": "function", "name": "add", "parameters": SCHEMA}], "reasoning": {"effort": "low"},
}  # fmt: skip
ANTHROPIC: Final = {
    "model": "tiny", "max_tokens": 5, "system": "Be brief.", "tools": [{"name": "add", "input_schema": SCHEMA}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}, {"role": "assistant", "content": [
        {"type": "tool_use", "id": "c", "name": "add", "input": {}}]}, {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "c", "content": "2"}]}], "tool_choice": {"type": "any"},
}  # fmt: skip
DIALECTS: Final[tuple[Dialect, ...]] = ("hermes", "llama", "mistral", "mistral_args", "qwen_coder", "list", "named")
ANSWERS: Final = (
    'So: <tool_call>\n{"name": "add", "arguments": {"a": [1, "}"]}}\n</tool_call>',
    '{"name": "add", "parameters": {"a": 1}}',
    '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}}, {"arguments": "{}", "name": "turn"}]',
    '[TOOL_CALLS]add[ARGS]{"a": "\\"}"}[TOOL_CALLS]turn[CALL_ID]x[ARGS]{}',
    "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
    "<think>\nHow? </thin\n</think>\n\nSo.",
)
PARAMS: Final = SamplingParams(seed=3, stop=("a",), logit_bias={3: 1.0}, grammar=Grammar("regex", "a+"), logprobs=2)
SENT: Final = (
    messages.Submit("id", (1, 2, 3), PARAMS, 1.5, samples=(("id-1", 7),)),
    messages.Encode("id", (1, 2), 1.5),
    messages.LimitsPatch(changes={"max_queue": 5}, ttl=1.0),
    messages.BaseLimits(Limits()),
    messages.TenantWeights({"a": 1.0}),
    messages.FollowKv(True),
)
RECEIVED: Final = (
    messages.Delta("id", (1, 2), logprobs=(TokenLogprob(-1.0, ((1, -1.0),)), TokenLogprob(-1.0, ())), finish="stop"),
    messages.Rejected("id", "queue_full", 1.0, "full"),
    messages.KvEvents((messages.KvStored("a-1", 40, 16, (3, 4)), messages.KvRemoved((4,)))),
)


class FuzzFault(Exception):
    """An input for which something did not hold."""


@dataclass(frozen=True)
class Target:
    """`check` raises for an input for which something does not hold."""

    name: str
    seeds: tuple[bytes, ...]
    check: Callable[[bytes, random.Random], None]


def _request(parse: Callable[[dict[str, Any]], Any]) -> Callable[[bytes, random.Random], None]:
    """A body is parsed, or refused with an error that can be sent."""

    def check(data: bytes, _: random.Random) -> None:
        try:
            parse(parse_object(data))
        except ApiError as error:
            if not isinstance(error, BadRequest | NotFound):
                raise FuzzFault(f"status {error.status} for a body") from error
            json.loads(error.body())

    return check


def _answer(data: bytes, draw: random.Random) -> None:
    """Any text is read, however it is cut; a call is one of an offered function, and no text is invented."""
    text = data.decode(errors="replace")
    for dialect in DIALECTS:
        whole = _read(dialect, [text])
        cuts = sorted(draw.randrange(len(text) + 1) for _ in range(4))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        if _read(dialect, pieces) != whole:
            raise FuzzFault(f"{dialect}: the cut into pieces changes the answer")
        if dialect != "named" and not {name for name, _ in whole[1]} <= NAMES:
            raise FuzzFault(f"{dialect}: a call of a function that was not offered")
        if not whole[1] and whole[0] not in text:
            raise FuzzFault(f"{dialect}: text that was not written")
    splitter = ReasoningSplitter(inside=draw.random() < 0.5)
    splitter.feed(text)
    splitter.finish()


def _read(dialect: Dialect, pieces: list[str]) -> tuple[str, list[tuple[str, str]]]:
    parser = parser_of(dialect, NAMES, name="add", schemas={"add": SCHEMA})
    text, calls = "", list[tuple[str, str]]()
    for event in [event for piece in pieces for event in parser.feed(piece)] + parser.finish():
        match event:
            case TextDelta(more):
                text += more
            case CallBegun(index, name):
                if index != len(calls):
                    raise FuzzFault(f"{dialect}: call {index} began as number {len(calls)}")
                calls.append((name, ""))
            case ArgumentsDelta(index, more):
                calls[index] = (calls[index][0], calls[index][1] + more)
    return text, calls


def _frame(decode: Callable[[bytes], Any]) -> Callable[[bytes, random.Random], None]:
    """A frame is decoded to a message that can be sent again, or refused as one that is not valid."""

    def check(data: bytes, _: random.Random) -> None:
        try:
            message = decode(data)
        except (msgspec.DecodeError, ValueError):
            return
        encode_frame(message)

    return check


def _bodies(*given: object) -> tuple[bytes, ...]:
    return tuple(json.dumps(each).encode() for each in given)


def _frames(given: tuple[Any, ...]) -> tuple[bytes, ...]:
    return tuple(encode_frame(each)[4:] for each in given)


TARGETS: Final = (
    Target("chat bodies", _bodies(CHAT), _request(lambda body: request_schema.chat(body, "tiny"))),
    Target("completion bodies", _bodies(COMPLETION), _request(lambda body: request_schema.completion(body, "tiny"))),
    Target(
        "responses bodies", _bodies(RESPONSES),
        _request(lambda body: request_schema.chat(responses.chat_body(body)[0], "tiny")),
    ),
    Target(
        "messages bodies", _bodies(ANTHROPIC),
        _request(lambda body: request_schema.chat(anthropic.chat_body(body)[0], "tiny")),
    ),
    Target(
        "embeddings bodies", _bodies({"model": "tiny", "input": ["a", "b"]}, {"input": [[1], [2]]}),
        _request(lambda body: embeddings._check(body, 64, 8)),
    ),
    Target("answers with calls", tuple(each.encode() for each in ANSWERS), _answer),
    Target("frames to the engine", _frames(SENT), _frame(decode_to_engine)),
    Target("frames from the engine", _frames(RECEIVED), _frame(decode_from_engine)),
)  # fmt: skip

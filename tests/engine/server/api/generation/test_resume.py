"""A stream that goes on from tokens that its client has: the rest is that of the undisturbed stream, byte for byte."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.engine.serving import CHAT, Served

COMPLETIONS = "/v1/completions"
MARK = b": tokens "
QUESTION = [{"role": "user", "content": "Tell me of caches and keys"}]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 30}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "greedy": (CHAT, {"messages": QUESTION, "temperature": 0}),
    "seeded": (CHAT, {"messages": QUESTION, "temperature": 1.3, "seed": 7}),
    "penalties": (
        COMPLETIONS,
        {"prompt": "a cache", "temperature": 0, "frequency_penalty": 1.5, "presence_penalty": 0.5, "repetition_penalty": 1.2, "ignore_eos": True},
    ),
    "minimum": (COMPLETIONS, {"prompt": "a cache", "seed": 3, "min_tokens": 12, "ignore_eos": False}),
    "usage": (CHAT, {"messages": QUESTION, "temperature": 0, "stream_options": {"include_usage": True}}),
    "logprobs": (CHAT, {"messages": QUESTION, "seed": 5, "logprobs": True, "top_logprobs": 2}),
    "grammar": (
        CHAT,
        {"messages": QUESTION, "seed": 11, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Stream:
    """What a stream has said: `text`, tokens, the number of events that have a role, and its end."""

    text: str
    tokens: tuple[int, ...]
    roles: int
    finish: tuple[str | None, ...]
    usage: Any
    logprobs: tuple[Any, ...]
    names: frozenset[tuple[str, int]]


def stream(served: Served, path: str, body: dict[str, Any]) -> Stream:
    """The stream, read to its end."""
    answer = served.request("POST", path, {"model": "tiny", "max_tokens": 24, "stream": True, "resume": True} | body)
    assert answer.status == 200, answer.body
    blocks = answer.body.split(b"\n\n")
    ids = [block.removeprefix(MARK) for block in blocks if block.startswith(MARK)]
    events = [block.removeprefix(b"data: ") for block in blocks if block.startswith(b"data: ")]
    assert events[-1] == b"[DONE]"
    assert blocks[-2].startswith(MARK)  # nothing of the stream is behind its last comment
    chunks = [json.loads(event) for event in events[:-1]]
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    deltas = [choice.get("delta", choice) for choice in choices]
    return Stream(
        text="".join(delta.get("content") or delta.get("text") or "" for delta in deltas),
        tokens=tuple(int(each) for one in ids for each in one.split(b",") if each),
        roles=sum("role" in delta for delta in deltas),
        finish=tuple(choice["finish_reason"] for choice in choices if choice["finish_reason"]),
        usage=next((chunk["usage"] for chunk in chunks if not chunk["choices"]), None),
        logprobs=tuple(entry for choice in choices if choice["logprobs"] for entry in choice["logprobs"]["content"]),
        names=frozenset((chunk["id"], chunk["created"]) for chunk in chunks),
    )


@pytest.mark.parametrize("case", CASES)
def test_the_rest_of_a_stream_is_that_of_the_undisturbed_one(served: Served, case: str) -> None:
    path, body = CASES[case]
    whole = stream(served, path, body)
    ((stream_id, created),) = whole.names
    assert len(whole.tokens) > 10
    shorter = len(whole.text)
    for cut in (1, 2, 3, len(whole.tokens) // 2, len(whole.tokens) - 1):
        begun = {"id": stream_id, "created": created, "tokens": whole.tokens[:cut]}
        rest = stream(served, path, body | {"resume": begun})
        assert rest.tokens == whole.tokens[cut:]
        assert whole.text.endswith(rest.text)
        assert len(rest.text) <= shorter
        shorter = len(rest.text)
        assert (rest.roles, rest.finish, rest.names) == (0, whole.finish, whole.names)
        expected = whole.logprobs[len(whole.logprobs) - len(rest.logprobs) :]
        assert [each["token"] for each in rest.logprobs] == [each["token"] for each in expected]
        assert [each["logprob"] for each in rest.logprobs] == pytest.approx(
            [each["logprob"] for each in expected], abs=1e-4
        )
        if whole.usage is not None:
            assert rest.usage["completion_tokens"] == whole.usage["completion_tokens"]
            assert rest.usage["prompt_tokens"] == whole.usage["prompt_tokens"]
    assert shorter < len(whole.text)


def test_without_the_field_a_stream_says_nothing_of_its_tokens(served: Served) -> None:
    body = {"model": "tiny", "messages": QUESTION, "max_tokens": 3, "stream": True}
    assert MARK not in served.request("POST", CHAT, body).body


@pytest.mark.parametrize(
    ("path", "changes", "param"),
    [
        (CHAT, {"stream": False}, "resume"),
        (CHAT, {"n": 2}, "resume"),
        (CHAT, {"temperature": 1.0}, "resume"),
        (CHAT, {"temperature": None}, "resume"),
        (CHAT, {"resume": "yes"}, "resume"),
        (CHAT, {"resume": {"tokens": 5}}, "resume.tokens"),
        (CHAT, {"resume": {"tokens": [True]}}, "resume.tokens"),
        (CHAT, {"resume": {"tokens": [-1]}}, "resume.tokens"),
        (CHAT, {"resume": {"tokens": [10**9]}}, "resume.tokens"),
        (CHAT, {"resume": {"tokens": [5] * 24}}, "resume.tokens"),
        (CHAT, {"resume": {"tokens": [5], "id": 5}}, "resume.id"),
        (CHAT, {"resume": {"tokens": [5], "created": -1}}, "resume.created"),
        (CHAT, {"resume": {"tokens": [5], "more": 1}}, "resume.more"),
        (COMPLETIONS, {"messages": None, "prompt": ["a", "b"]}, "resume"),
        (COMPLETIONS, {"messages": None, "prompt": "a", "echo": True}, "resume"),
    ],
    ids=range(15),
)
def test_what_cannot_go_on_is_refused(served: Served, path: str, changes: dict[str, Any], param: str) -> None:
    good = {"model": "tiny", "messages": QUESTION, "max_tokens": 24, "stream": True, "resume": True, "temperature": 0}
    body = {name: value for name, value in (good | changes).items() if name != "messages" or value is not None}
    answer = served.request("POST", path, body)
    assert (answer.status, answer.error["param"]) == (400, param)

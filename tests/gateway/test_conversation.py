"""What the gateway reads of a body: a later turn begins with the earlier text, and nothing that arrives can make it fail."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice import contract
from sluice.httpapi.errors import BadRequest
from sluice_gateway.conversation import LARGE_BYTES, MAX_TEXT, Conversation, read_conversation

CHAT = contract.PATH_CHAT_COMPLETIONS


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


messages_drawn = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool"])},
        optional={"content": st.one_of(st.none(), st.text(), st.lists(st.text())), "tool_calls": st.lists(st.text())},
    ),
    max_size=6,
)


@given(messages_drawn, messages_drawn, st.sampled_from(["", "Be brief."]))
def test_a_longer_conversation_begins_with_a_shorter_one(
    first: list[dict[str, Any]], more: list[dict[str, Any]], system: str
) -> None:
    short, long = (
        read_conversation(CHAT, body(model="m", system=system, temperature=len(each), messages=each)).text
        for each in (first, first + more)
    )
    assert long.startswith(short)
    assert (long == short) == (not more)


@given(
    st.one_of(
        st.binary(),
        st.recursive(st.none() | st.integers() | st.text(), st.lists)
        .map(
            lambda drawn: json.dumps(
                {"model": "m", "messages": drawn, "prompt": drawn, "slo": drawn, "priority": drawn}
            )
        )
        .map(str.encode),
    )
)
def test_any_bytes_are_read_or_refused(found: bytes) -> None:
    with contextlib.suppress(BadRequest):
        assert isinstance(read_conversation(CHAT, found), Conversation)


@pytest.mark.parametrize(
    ("path", "text"),
    [(contract.PATH_COMPLETIONS, b"Once"), (contract.PATH_EMBEDDINGS, b""), (contract.PATH_TOKENIZE, b"")],
)
def test_only_what_an_engine_caches_has_a_text(path: str, text: bytes) -> None:
    assert read_conversation(path, body(model="m", prompt="Once", cache_salt="s")) == Conversation("m", text, "s")


@pytest.mark.parametrize(
    "found",
    [
        b"",
        b"[]",
        b'"a"',
        b"null",
        b"[" * 100_000,
        b'{"n": NaN}',
        b'{"n": Infinity}',
        b'{"model": 5}',
        b"\xff",
        b'{"a": "\\ud800"}',
    ],
)
def test_what_is_no_request_is_refused(found: bytes) -> None:
    with pytest.raises(BadRequest):
        read_conversation(CHAT, found)


def test_only_a_gateway_says_from_which_tokens_a_stream_goes_on() -> None:
    for text in ("a", "a" * LARGE_BYTES):
        assert read_conversation(CHAT, body(prompt=text, resume=True)).resume
        with pytest.raises(BadRequest, match="resume must be true or false") as refused:
            read_conversation(CHAT, body(prompt=text, resume={"tokens": [1]}))
        assert refused.value.param == "resume"


def test_priorities_and_targets_are_read_as_far_as_an_engine_takes_them() -> None:
    found = read_conversation(CHAT, body(priority=7, slo={"ttft_ms": 250}))
    assert (found.priority, found.ttft_seconds) == (7, 0.25)
    for priority, ttft in ((101, 0), (True, -1), ("7", "x"), (1.5, None)):
        found = read_conversation(CHAT, body(priority=priority, slo={"ttft_ms": ttft}))
        assert (found.priority, found.ttft_seconds) == (0, None)


def test_the_text_is_bounded_and_a_longer_prompt_of_token_ids_begins_with_a_shorter_one() -> None:
    ids = list(range(1_000_000))
    long, short = (read_conversation(contract.PATH_COMPLETIONS, body(prompt=ids[:n])).text for n in (1_000_000, 100))
    assert long.startswith(short)
    assert len(long) <= MAX_TEXT
    assert len(read_conversation(CHAT, body(messages=[{"role": "user", "content": "ä" * 3_000_000}])).text) <= MAX_TEXT


def test_the_attribution_of_a_coding_agent_separates_no_conversations() -> None:
    rules = {"type": "text", "text": "You are an agent."}

    def text(*blocks: dict[str, str]) -> bytes:
        sent = body(system=[*blocks, rules], messages=[{"role": "user", "content": "a"}])
        return read_conversation(contract.PATH_MESSAGES, sent).text

    first, second = (
        {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.{version};"} for version in ("1a0", "7c3")
    )
    assert text(first) == text(second) == text()

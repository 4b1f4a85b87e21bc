"""What the gateway reads of a body: a later turn begins with the earlier text, and nothing that arrives can make it fail."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice import contract
from sluice_gateway.conversation import Conversation, read_conversation

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
    st.one_of(st.binary(), st.recursive(st.none() | st.text() | st.floats(), st.lists).map(json.dumps).map(str.encode))
)
def test_any_bytes_are_read_without_an_error(found: bytes) -> None:
    assert isinstance(read_conversation(CHAT, found), Conversation)


@pytest.mark.parametrize(
    ("path", "text"),
    [(contract.PATH_COMPLETIONS, b"Once"), (contract.PATH_EMBEDDINGS, b""), (contract.PATH_TOKENIZE, b"")],
)
def test_only_what_an_engine_caches_has_a_text(path: str, text: bytes) -> None:
    assert read_conversation(path, body(model="m", prompt="Once", cache_salt="s")) == Conversation("m", text, "s")


@pytest.mark.parametrize("found", [b"", b"[]", b"[" * 100_000, b'{"model": NaN}', b'{"model": 5}', b"\xff"])
def test_what_an_engine_will_refuse_names_no_model(found: bytes) -> None:
    assert read_conversation(CHAT, found).model is None


def test_a_lone_surrogate_is_no_reason_to_fail() -> None:
    assert read_conversation(CHAT, b'{"model": "m", "prompt": "\\ud800"}') in (
        Conversation(),
        Conversation("m", "\ud800".encode("utf-8", "surrogatepass")),
    )

"""A growing answer: text and logprobs leave together, whatever is held back and wherever it is cut."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sluice_engine import messages
from sluice_engine.request import TokenLogprob
from sluice_engine.server.api.generation.logprobs import chat_logprobs, completion_logprobs
from sluice_engine.text import Choice, Entry, TextModel, load_text_model

SENTENCE = "A replica is ready 🚀 when its engine — and not before — has loaded the model: 日本語."


@pytest.fixture(scope="module")
def text(tiny_model: Path) -> TextModel:
    return load_text_model(tiny_model)


def grow(
    text: TextModel, tokens: list[int], sizes: list[int], stop: tuple[str, ...] = (), min_tokens: int = 0
) -> tuple[str, list[Entry], Choice, list[tuple[str, list[Entry]]]]:
    """Feeds deltas of these sizes, the last one with the end, until the answer is complete."""
    choice = Choice(0, "a", text, stop, min_tokens, with_logprobs=True)
    pieces: list[tuple[str, list[Entry]]] = []
    entries: list[Entry] = []
    emitted, at = "", 0
    while choice.finish is None:
        size = sizes[len(pieces) % len(sizes)]
        part = tuple(tokens[at : at + size])
        at += size
        logprobs = tuple(TokenLogprob(-float(token)) for token in part)
        finish: messages.FinishReason | None = "length" if at >= len(tokens) else None
        piece = choice.take(messages.Delta("a", part, finish, logprobs=logprobs))
        pieces.append((piece.text, piece.logprobs))
        emitted += piece.text
        entries += piece.logprobs
        assert choice.stopped_by_text or all(entry.end <= len(emitted) for entry in entries)  # never before its text
    return emitted, entries, choice, pieces


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), cut=st.integers(0, 60), length=st.integers(1, 9))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_text_and_its_logprobs_are_emitted_together(text: TextModel, sizes: list[int], cut: int, length: int) -> None:
    tokens = text.encode_prompt(SENTENCE)
    whole, entries, choice, _ = grow(text, tokens, sizes)
    assert whole == SENTENCE and choice.finish == "length" and choice.tokens == len(tokens)
    assert [entry.token for entry in entries] == tokens
    assert b"".join(map(text.token_bytes, tokens)).decode() == SENTENCE
    stop = SENTENCE[cut : cut + length]
    before, kept, choice, _ = grow(text, tokens, sizes, (stop,))
    assert before == SENTENCE[: SENTENCE.index(stop)]
    assert choice.finish == "stop" and choice.stopped_by_text
    assert [entry.token for entry in kept] == tokens[: len(kept)]
    if before:
        assert kept[-1].start < len(before) <= sum(entry.end - entry.start for entry in kept)
    else:
        assert kept == []


def test_a_partial_character_is_emitted_with_the_complete_one(text: TextModel) -> None:
    tokens = text.encode_prompt("🚀🚀")
    pieces = grow(text, tokens, [1])[3]
    assert len(pieces) == len(tokens) > 2
    for piece, entries in pieces:
        assert bool(piece) == bool(entries)
        assert b"".join(text.token_bytes(entry.token) for entry in entries).decode() == piece


def test_a_stop_string_does_not_count_before_min_tokens(text: TextModel) -> None:
    tokens = text.encode_prompt("one two one two one two")
    emitted, _, choice, _ = grow(text, tokens, [1], ("two",), min_tokens=len(text.encode_prompt("one two one two")))
    assert emitted.startswith("one two one two") and choice.finish == "stop"
    assert emitted.count("two") == 2


def test_tokens_after_the_end_are_ignored(text: TextModel) -> None:
    choice = Choice(0, "a", text, (), 0, with_logprobs=False)
    choice.take(messages.Delta("a", (5,), "stop"))
    assert choice.take(messages.Delta("a", (6,))).text == ""
    assert choice.tokens == 1


class Bytes:
    """Tokens 0.. are these bytes."""

    def __init__(self, *spelled: bytes) -> None:
        self._spelled = spelled

    def token_bytes(self, token: int) -> bytes:
        return self._spelled[token]


def test_an_incomplete_character_is_written_as_bytes() -> None:
    vocabulary = Bytes(b"\xf0\x9f", b"\x9a\x80", b"a")
    entries = [
        Entry(0, 0, 0, TokenLogprob(-1.0, ((0, -1.0), (2, -2.0)))),
        Entry(1, 0, 1, TokenLogprob(-3.0, ((2, -0.5),))),
    ]
    assert chat_logprobs(entries, vocabulary)["content"][0] == {
        "token": "bytes:\\xf0\\x9f",
        "logprob": -1.0,
        "bytes": [0xF0, 0x9F],
        "top_logprobs": [
            {"token": "bytes:\\xf0\\x9f", "logprob": -1.0, "bytes": [0xF0, 0x9F]},
            {"token": "a", "logprob": -2.0, "bytes": [97]},
        ],
    }
    assert completion_logprobs(entries, vocabulary) == {
        "tokens": ["bytes:\\xf0\\x9f", "bytes:\\x9a\\x80"],
        "token_logprobs": [-1.0, -3.0],
        "top_logprobs": [{"bytes:\\xf0\\x9f": -1.0, "a": -2.0}, {"a": -0.5, "bytes:\\x9a\\x80": -3.0}],
        "text_offset": [0, 0],
    }


def test_a_special_token_is_spelled_out_and_an_unknown_id_is_empty(text: TextModel) -> None:
    (end,) = text.stop_token_ids[:1]
    assert text.token_bytes(end).startswith(b"<|")
    assert text.token_bytes(10**6) == b""


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), cut=st.integers(0, 60), least=st.integers(0, 30))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_output_does_not_depend_on_the_tokens_per_delta(
    text: TextModel, sizes: list[int], cut: int, least: int
) -> None:
    tokens = text.encode_prompt(SENTENCE * 2)
    stop = SENTENCE[cut : cut + 3]
    whole = grow(text, tokens, [1], (stop,), least)
    parts = grow(text, tokens, sizes, (stop,), least)
    assert parts[:2] == whole[:2]
    assert [parts[2].tokens, parts[2].score, parts[2].finish] == [whole[2].tokens, whole[2].score, whole[2].finish]

"""An engine's events as bytes: however they are cut, whatever they are."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_engine import messages
from sluice_engine.server.engine.kv_feed import HEARTBEAT, event_text
from sluice_engine.server.engine.kv_feed import _text as engine_text
from sluice_gateway.replicas.kv_events import (
    MAX_EVENT_BYTES,
    BadFeed,
    Begun,
    EventParser,
    KvEvent,
    Lost,
    Removed,
    Stored,
)

BLOCKS = st.lists(st.integers(0, 2**31 - 1), max_size=30).map(tuple)
SENT = st.lists(
    st.builds(messages.KvStored, st.from_regex("[a-f0-9]{1,9}-[0-9]", fullmatch=True), st.integers(1, 10**6),
              st.integers(1, 256), BLOCKS) | st.builds(messages.KvRemoved, BLOCKS),
    max_size=12,
)  # fmt: skip


def parsed(parser: EventParser, data: bytes, cuts: list[int]) -> list[KvEvent]:
    ends = sorted(cut % (len(data) + 1) for cut in cuts)
    pieces = [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]
    return [event for piece in pieces for event in parser.feed(piece)]


@given(SENT, st.lists(st.integers(0, 10**6), max_size=9))
def test_what_the_engine_sends_is_read_however_it_is_cut(
    sent: list[messages.KvStored | messages.KvRemoved], cuts: list[int]
) -> None:
    data = HEARTBEAT.join(engine_text(event, number) for number, event in enumerate(sent, start=5))
    want = [
        Removed(each.blocks)
        if isinstance(each, messages.KvRemoved)
        else Stored(each.tag, each.tokens, each.block_tokens, each.blocks)
        for each in sent
    ]
    assert parsed(EventParser(), data, cuts) == want


def test_a_missing_number_and_a_reset_are_lost_events() -> None:
    parser, gone = EventParser(), Removed((1,))
    assert parser.feed(event_text("begin", None, {"engine": "e"})) == [Begun("e")]
    assert parser.feed(event_text("removed", 7, {"blocks": [1]})) == [gone]
    assert parser.feed(event_text("removed", 9, {"blocks": [1]})) == [Lost(), gone]
    assert parser.feed(event_text("removed", 9, {"blocks": [1]})) == [Lost(), gone]
    assert parser.feed(event_text("reset", None, {"lost": 3}) + event_text("removed", 13, {"blocks": [1]})) == [
        Lost(), Lost(), gone,
    ]  # fmt: skip
    assert parser.feed(event_text("of the future", 14, {}) + event_text("removed", 15, {"blocks": [1]})) == [gone]


@pytest.mark.parametrize(
    "text",
    [
        b"event: removed\ndata: {}\n\n",
        b"event: removed\nid: 1\n\n",
        b'event: removed\nid: -1\ndata: {"blocks": []}\n\n',
        b'event: removed\nid: \xd9\xa1\ndata: {"blocks": []}\n\n',
        b"event: removed\nid: " + b"9" * 30 + b'\ndata: {"blocks": []}\n\n',
        b'event: removed\nid: 1\ndata: {"blocks": [-1]}\n\n',
        b'event: removed\nid: 1\ndata: {"blocks": [1.5]}\n\n',
        b'event: removed\nid: 1\ndata: {"blocks": [true]}\n\n',
        b'event: removed\nid: 1\ndata: {"blocks": [1e400]}\n\n',
        b'event: removed\nid: 1\ndata: {"blocks": "all"}\n\n',
        b'event: removed\nid: 1\ndata: {"blocks": [' + b"9" * 5000 + b"]}\n\n",
        b'event: removed\nid: 1\ndata: {"blocks": [' + b"1," * 2**17 + b"1]}\n\n",
        b"event: removed\nid: 1\ndata: " + b"[" * 100_000 + b"\n\n",
        b"event: removed\nid: 1\ndata: \xff\xfe\n\n",
        b'event: stored\nid: 1\ndata: {"prompt": "a", "tokens": 0, "block_tokens": 16, "blocks": []}\n\n',
        b'event: stored\nid: 1\ndata: {"prompt": "a", "tokens": 9, "block_tokens": 0, "blocks": []}\n\n',
        b'event: stored\nid: 1\ndata: {"prompt": "'
        + b"a" * 65
        + b'", "tokens": 9, "block_tokens": 9, "blocks": []}\n\n',
        b'event: stored\nid: 1\ndata: {"prompt": 3, "tokens": 9, "block_tokens": 9, "blocks": []}\n\n',
        b"event: begin\ndata: {}\n\n",
        b"HTTP/1.1 200 OK\n\n",
        b"x" * (MAX_EVENT_BYTES + 1),
    ],
    ids=lambda text: text[:60],
)
def test_a_wrong_feed_is_refused_in_words(text: bytes) -> None:
    with pytest.raises(BadFeed) as caught:
        EventParser().feed(text)
    assert len(str(caught.value)) < 500


@given(st.binary(max_size=300) | st.lists(st.sampled_from(
    [b"event: removed\n", b"event: stored\n", b"id: 3\n", b"data: {\"blocks\": [1]}\n", b"\n", b":\n", b"\r\n", b"data"]
), max_size=20).map(b"".join))  # fmt: skip
def test_any_bytes_are_events_or_a_wrong_feed(data: bytes) -> None:
    try:
        found = EventParser().feed(data)
    except BadFeed:
        found = []
    assert all(isinstance(event, Begun | Stored | Removed | Lost) for event in found)
    json.dumps([repr(event) for event in found])


def test_an_event_without_an_end_takes_bounded_memory() -> None:
    parser, sent = EventParser(), 0
    with pytest.raises(BadFeed, match="more than"):
        while sent <= 2 * MAX_EVENT_BYTES:
            parser.feed(b"data: " + b"x" * 60_000)
            sent += 60_006
    assert sent <= MAX_EVENT_BYTES + 120_000

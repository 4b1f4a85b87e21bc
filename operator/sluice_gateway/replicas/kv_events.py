"""Parses an engine's `/kv_events`. The feed is taken from a replica that may be wrong in any way: nothing of it is
unbounded."""

from typing import Annotated, Final

import msgspec

MAX_EVENT_BYTES: Final = 1024 * 1024  # a prompt of a million tokens in blocks of 16 has 0.5 MB
_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_Count = Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
_Blocks = Annotated[tuple[_Number, ...], msgspec.Meta(max_length=2**17)]


class BadFeed(Exception):
    """The feed is not what `contract.PATH_KV_EVENTS` has. The message is a clause."""


class Begun(msgspec.Struct, frozen=True):
    """The first event. Another engine than that of an earlier feed has another cache."""

    engine: Annotated[str, msgspec.Meta(max_length=64)]


class Stored(msgspec.Struct, frozen=True):
    """The prompt that was tagged so lies in these blocks."""

    prompt: Annotated[str, msgspec.Meta(max_length=64)]
    tokens: _Count
    block_tokens: _Count
    blocks: _Blocks


class Removed(msgspec.Struct, frozen=True):
    """These blocks have left the cache."""

    blocks: _Blocks


class Lost(msgspec.Struct, frozen=True):
    """Events are missing here."""


_FIELDS: Final = frozenset({b"", b"event", b"id", b"data", b"retry"})  # "" begins a comment
KvEvent = Begun | Stored | Removed | Lost
_DECODERS: Final[dict[bytes, "msgspec.json.Decoder[Begun | Stored | Removed]"]] = {
    b"begin": msgspec.json.Decoder(Begun),
    b"stored": msgspec.json.Decoder(Stored),
    b"removed": msgspec.json.Decoder(Removed),
}


class EventParser:
    """Server-sent events from bytes, however they are cut."""

    def __init__(self) -> None:
        self._rest = b""  # the beginning of an event
        self._last: int | None = None  # id of the last event

    def feed(self, data: bytes) -> list[KvEvent]:
        """The events that are complete with these bytes. Raises BadFeed, also for one of more than MAX_EVENT_BYTES."""
        *whole, self._rest = (self._rest + data).split(b"\n\n")
        if len(self._rest) > MAX_EVENT_BYTES:
            raise BadFeed(f"an event has more than {MAX_EVENT_BYTES} bytes")
        return [event for text in whole for event in self._events(text)]

    def _events(self, text: bytes) -> list[KvEvent]:
        fields = dict[bytes, bytes]()
        for line in text.split(b"\n"):
            name, _, value = line.partition(b":")
            fields[name] = value.removeprefix(b" ")
        if not fields.keys() <= _FIELDS:
            raise BadFeed("it has lines that are no server-sent events")
        kind = fields.get(b"event")
        if kind is None:
            return []  # a comment
        if kind == b"reset":
            return [Lost()]
        missing: list[KvEvent] = [Lost()] if kind != b"begin" and self._has_gap(fields.get(b"id", b"")) else []
        decoder = _DECODERS.get(kind)
        if decoder is None:
            return missing  # of a newer engine
        try:
            return [*missing, decoder.decode(fields.get(b"data", b""))]
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BadFeed(f"an event {kind.decode()} is wrong: {error}") from error

    def _has_gap(self, number: bytes) -> bool:
        if not (number.isdigit() and len(number) < 20):
            raise BadFeed("an event has no number")
        last, self._last = self._last, int(number)
        return last is not None and self._last != last + 1

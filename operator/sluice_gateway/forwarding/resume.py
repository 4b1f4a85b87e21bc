"""A stream that goes on at another replica when its own one dies, for requests with `resume: true`.

The engine ends each write of such a stream with a comment of its token ids. Events are passed on only together with that
comment, so that what the client has is always what the known tokens are. The request is then sent again with those tokens as
the beginning of its output, and the other replica's events follow without a repetition.
"""

from typing import Any, Final

import orjson

from sluice import contract
from sluice.httpapi.body import parse_object
from sluice_gateway.errors import ends_broken

MAX_HELD: Final = 4 * 1024 * 1024  # bytes of events without a comment; no engine writes so many at once
_MARK: Final = contract.SSE_TOKENS.encode()
_DATA: Final = b"data: "
_END: Final = b"\n\n"


class ResumableStream:
    """What a client has of one stream. One whose engine does not say its tokens is passed on as it comes."""

    def __init__(self, body: bytes) -> None:
        """`body` is the request's."""
        self._body = body
        self._held = b""  # events whose comment has not arrived
        self._tokens: list[int] = []
        self._stream_id = ""
        self._created = 0
        self.last = b""
        self.complete = False
        self.resumable = True

    @property
    def broken(self) -> bool:
        """Whether it ends with an error event of its engine, which no comment follows and which is not passed on yet."""
        return not self.complete and ends_broken(self._held or self.last)

    def take(self, chunk: bytes) -> bytes:
        """More bytes of the stream; returns the events that may be passed on."""
        self._held += chunk
        passed: list[bytes] = []
        try:
            while (group := self._next_group()) is not None:
                passed.append(group)
        except (ValueError, KeyError, TypeError, IndexError):
            self.resumable = False
        if len(self._held) > MAX_HELD or not self.resumable:
            self.resumable = False
            passed.append(self.end())
        found = b"".join(passed)
        self.last = found or self.last
        return found

    def end(self) -> bytes:
        """The stream has ended; returns what is left of it, such as an error event."""
        left, self._held = self._held, b""
        return left

    def next_body(self) -> bytes:
        """The request for another replica. What had arrived without its comment is dropped: it comes again."""
        self._held = b""
        document = parse_object(self._body)
        begun = {"id": self._stream_id, "created": self._created, "tokens": self._tokens}
        return orjson.dumps(document | {contract.FIELD_RESUME: begun if self._tokens else True})

    def _next_group(self) -> bytes | None:
        """The next events whose comment is complete."""
        start = 0 if self._held.startswith(_MARK) else self._held.find(b"\n" + _MARK) + 1
        if start == 0 and not self._held.startswith(_MARK):
            return None
        end = self._held.find(_END, start)
        if end < 0:
            return None
        events, ids = self._held[:start], self._held[start + len(_MARK) : end]
        self._held = self._held[end + len(_END) :]
        self._tokens += [int(each) for each in ids.split(b",") if each]
        if events and not self._stream_id:
            first: Any = orjson.loads(events.split(_END, 1)[0].removeprefix(_DATA))
            self._stream_id, self._created = str(first["id"]), int(first["created"])
        self.complete = self.complete or events.endswith(_DATA + b"[DONE]" + _END)
        return events

"""One engine's answer: its head, and its body as it arrives."""

import asyncio
from collections.abc import Callable
from copy import copy
from typing import Final

from multidict import CIMultiDict, CIMultiDictProxy, MultiMapping, istr

from sluice_gateway.upstream.errors import NotHttp, UpstreamError

MAX_BUFFERED: Final = 64 * 1024  # bytes that have arrived and are not taken; beyond it the socket is not read
EVENT_STREAM: Final = "text/event-stream"
_CONTENT_TYPE: Final = istr("Content-Type")
_CONTENT_LENGTH: Final = istr("Content-Length")
_NO_HEADERS: Final[MultiMapping[str]] = CIMultiDictProxy(CIMultiDict[str]())


class Answer:
    """An answer whose headers have arrived. `reading(False)` stops its connection from being read, `reading(True)` goes on."""

    __slots__ = (
        "_close", "_error", "_parts", "_reading", "_size", "_waiter", "ended", "headers", "is_events", "reason", "status",
    )  # fmt: skip

    def __init__(
        self,
        head: tuple[int, str, MultiMapping[str]],
        reading: Callable[[bool], None],
        close: Callable[[], None],
    ) -> None:
        """`head`: status, reason, headers."""
        self.status, self.reason, self.headers = head
        self.is_events = self.headers.get(_CONTENT_TYPE, "").partition(";")[0].strip().lower() == EVENT_STREAM
        self.ended = False  # whether all of it has arrived
        self._reading, self._close = reading, close
        self._error: UpstreamError | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None

    @property
    def content_length(self) -> int | None:
        """Bytes of the body, None where the head does not tell."""
        text = self.headers.get(_CONTENT_LENGTH)
        return int(text) if text is not None and text.isascii() and text.isdigit() else None

    @property
    def is_garbage(self) -> bool:
        """Whether its body is not framed as HTTP."""
        return isinstance(self._error, NotHttp)

    @property
    def at_end(self) -> bool:
        """Whether nothing is left to be read."""
        return self.ended and not self._parts

    async def read(self) -> bytes:
        """What has arrived since the last call; empty at the end. Raises UpstreamError if the rest does not come."""
        while (more := self.more()) is not None:
            await more
        return self.take()

    def more(self) -> asyncio.Future[None] | None:
        """None once there is something to take, or the end; before, what its reader waits for. Raises UpstreamError."""
        if self._parts or self.ended:
            return None
        if self._error is not None:
            raise copy(self._error)  # a kept one that is raised keeps its frames, and they this answer
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    def take(self) -> bytes:
        """What has arrived since the last call, empty at the end."""
        self._waiter = None
        if len(self._parts) == 1:
            found = self._parts.pop()
        else:
            found = b"".join(self._parts)
            self._parts.clear()
        if self._size > MAX_BUFFERED and not self.ended:
            self._reading(True)
        self._size = 0
        return found

    async def read_at_most(self, most: int) -> bytes:
        """The body to its end, or its first `most` bytes. Raises UpstreamError."""
        parts = b""
        while len(parts) < most and (part := await self.read()):
            parts += part
        return parts[:most]

    def forget_head(self) -> None:
        """Drops the headers, which have been passed on: a stream may last for minutes."""
        self.headers = _NO_HEADERS

    def close(self) -> None:
        """Ends it. Its connection closes unless the whole answer has arrived. Idempotent."""
        close = self._close
        self._close = self._reading = _nothing  # the connection may carry another answer now
        close()

    def feed(self, part: bytes) -> None:
        """Bytes of the body have arrived."""
        self._parts.append(part)
        before, self._size = self._size, self._size + len(part)
        if before <= MAX_BUFFERED < self._size:
            self._reading(False)

    def end(self) -> None:
        """All of it has arrived. Its connection is read again, because it may carry the next answer."""
        self.ended = True
        if self._size > MAX_BUFFERED:
            self._reading(True)

    def fail(self, error: UpstreamError) -> None:
        """The rest does not come. What has arrived is read first."""
        self._error = error
        self.wake()

    def wake(self) -> None:
        """Lets its reader go on."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _nothing(*_: object) -> None:
    """An answer that has been closed has no connection."""

"""The socket of the engine process as a protocol: a message is delivered in the turn of the event loop in which it arrives.

A stream reader would wake a task for it, which costs every step some 30 µs and one more turn.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from sluice_engine import messages


class EngineConnection(asyncio.Protocol):
    """One connection. `on_end` is called once: with None at its end, or with what failed in reading it."""

    def __init__(
        self,
        on_made: "Callable[[EngineConnection], bool]",
        on_message: Callable[[messages.FromEngine], None],
        on_end: Callable[[Exception | None], None],
    ) -> None:
        """`on_made` returns False to refuse the connection, of which nothing is read then."""
        self._on_made, self._on_message, self._on_end = on_made, on_message, on_end
        self._received = bytearray()  # the beginning of a frame
        self._accepted = self._ended = False
        self._writable: asyncio.Future[None] | None = None  # while the transport's buffer is full
        self.transport: asyncio.Transport | None = None

    @property
    def closing(self) -> bool:
        """Whether nothing can be written any more."""
        return self.transport is None or self.transport.is_closing()

    def write(self, frame: bytes) -> None:
        """Writes a frame, which is dropped if the connection is closed."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(frame)

    async def drain(self) -> None:
        """Waits while the transport's buffer is full. Raises ConnectionError if the connection is lost."""
        if self._ended:
            raise ConnectionResetError("the connection to the engine process is lost")
        if self._writable is not None:
            await asyncio.shield(self._writable)

    def close(self) -> None:
        """Closes the connection once what was written is sent."""
        if self.transport is not None:
            self.transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Offers the connection to its owner."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transports do not subclass asyncio's
        self._accepted = self._on_made(self)
        if not self._accepted:
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Delivers the messages that are complete."""
        if self._ended or not self._accepted:
            return
        try:
            for body in self._frames(data):
                self._on_message(messages.decode_from_engine(body))
        except Exception as error:  # noqa: BLE001 - its owner logs it: nothing more can be read
            self._end(error)

    def _frames(self, data: bytes) -> list[bytes]:
        """The bodies of the frames that are complete with these bytes. Raises ValueError for one that is too long."""
        received, found, at = self._received, list[bytes](), 0
        received += data
        while len(received) - at >= messages.HEAD_BYTES:
            end = at + messages.HEAD_BYTES + messages.frame_length(received[at : at + messages.HEAD_BYTES])
            if len(received) < end:
                break
            found.append(bytes(received[at + messages.HEAD_BYTES : end]))
            at = end
        del received[:at]
        return found

    def pause_writing(self) -> None:
        """The transport's buffer is full."""
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        """The transport's buffer has room."""
        waiting, self._writable = self._writable, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The end of the connection, also by an error of the socket."""
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self._ended:
            return
        self._ended = True
        waiting, self._writable = self._writable, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(ConnectionResetError("the connection to the engine process is lost"))
            waiting.exception()  # it may have no waiter
        if self._accepted:
            self._on_end(error)

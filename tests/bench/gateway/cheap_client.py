"""A client that reads streams at little cost, so that a measurement leaves the processors to what it measures.

It reads chunked answers on kept connections, one at a time on each, and nothing else of HTTP.
"""

import asyncio
from typing import Final, Self, cast
from urllib.parse import urlsplit

_END: Final = b"0\r\n\r\n"
_HEAD_END: Final = b"\r\n\r\n"


class StreamBroken(Exception):
    """The connection ended within an answer."""


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self.is_open = True
        self._parts: list[bytes] = []
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        """The answer is whole with its last chunk, whose end may arrive by itself."""
        self._parts.append(data)
        end = data if len(data) >= len(_END) else b"".join(self._parts[-len(_END) :])
        if end.endswith(_END) and self._answer is not None and not self._answer.done():
            self._answer.set_result(b"".join(self._parts))

    def connection_lost(self, exc: Exception | None) -> None:
        """An answer that is being read is broken."""
        self.is_open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(StreamBroken(f"after {sum(map(len, self._parts))} bytes: {exc}"))

    async def answer_to(self, request: bytes) -> bytes:
        """The whole answer, as it arrives. Raises StreamBroken."""
        if self._transport is None or not self.is_open:
            raise StreamBroken("the connection is closed")
        self._parts.clear()
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        """End the connection."""
        self.is_open = False
        if self._transport is not None:
            self._transport.close()


class CheapClient:
    """Connections to the server at `url`; as many as it has streams at once."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = str(parts.hostname), int(parts.port or 80)
        self._idle: list[_Connection] = []

    async def __aenter__(self) -> Self:
        """Itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the idle connections."""
        for connection in self._idle:
            connection.close()

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to a JSON body. Raises StreamBroken, OSError, ValueError."""
        head = f"POST {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nContent-Type: application/json\r\n"
        connection = await self._connection()
        answer = await connection.answer_to(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        head_read, _, rest = answer.partition(_HEAD_END)
        if b"connection: close" in head_read.lower():
            connection.close()
        else:
            self._idle.append(connection)
        return int(head_read.split(b" ", 2)[1]), unchunked(rest)

    async def _connection(self) -> _Connection:
        while self._idle:
            if (connection := self._idle.pop()).is_open:
                return connection
        _, opened = await asyncio.get_running_loop().create_connection(_Connection, self._host, self._port)
        return opened


def unchunked(body: bytes) -> bytes:
    """The content of a chunked body without trailers. Raises ValueError."""
    found, place = [], 0
    while size := int(body[place : (line_end := body.index(b"\r\n", place))], 16):
        found.append(body[line_end + 2 : line_end + 2 + size])
        place = line_end + 4 + size
    return b"".join(found)

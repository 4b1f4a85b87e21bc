"""The response of a token stream. Its headers are made before the first token is there, and are sent with it.

aiohttp makes the headers when a response is prepared: here a token would wait for them. Each write is one call of the
transport, with the framing of its chunk.
"""

from collections.abc import Mapping

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time

HTTP_11 = (1, 1)


class EventResponse(web.StreamResponse):
    """A response with status 200 whose body follows in chunks; a client of HTTP/1.0 gets it up to the connection's end."""

    def __init__(self, request: web.BaseRequest, headers: Mapping[str, str]) -> None:
        super().__init__(headers=headers)
        self._request = request
        self._keeps: bool | None = None  # once the headers are made: whether the connection stays open
        self._chunks = False
        self._head = ""  # the headers, until they are sent
        self._ended = False

    @property
    def keep_alive(self) -> bool | None:
        """Whether the connection stays open after the response."""
        return super().keep_alive if self._keeps is None else self._keeps

    def begin(self) -> None:
        """Makes the headers. Nothing is sent: another response may still take the place of this one.

        Raises ValueError for a header with a control character.
        """
        version = self._request.version
        self._chunks = version >= HTTP_11
        self._keeps = self._chunks and self._request.keep_alive and super().keep_alive is not False
        fields = {**self.headers, "Date": rfc822_formatted_time()}
        if self._chunks:
            fields["Transfer-Encoding"] = "chunked"
        if not self._keeps:
            fields["Connection"] = "close"
        self._head = f"HTTP/{version[0]}.{version[1]} 200 OK\r\n{_lines(fields)}"

    def add_headers(self, headers: Mapping[str, str]) -> None:
        """Adds headers that are known with the first event only. Raises ValueError as `begin` does."""
        self._head += _lines(headers)

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """aiohttp's step before the body: the headers are sent with the first bytes."""
        return self._request.writer

    async def write(self, data: bytes | bytearray | memoryview) -> None:
        """Sends bytes of the body, at least one. Raises ConnectionError."""
        await self._request.writer.write(self._framed(data))

    async def write_eof(self, data: bytes = b"") -> None:
        """Sends the last bytes of the body and its end. Idempotent. Raises ConnectionError."""
        if self._ended:
            return
        framed = self._framed(data) if data or self._head else b""
        self._ended = True
        writer = self._request.writer
        await writer.write(framed + b"0\r\n\r\n" if self._chunks else framed)
        await writer.drain()

    def _framed(self, data: bytes | bytearray | memoryview) -> bytes:
        body = bytes(data)
        if body and self._chunks:
            body = b"%x\r\n%b\r\n" % (len(body), body)
        if not self._head:
            return body
        head, self._head = self._head, ""
        return head.encode() + b"\r\n" + body


def _lines(fields: Mapping[str, str]) -> str:
    if not "".join(fields.values()).isprintable():
        raise ValueError("a header has a control character")
    return "".join([f"{name}: {value}\r\n" for name, value in fields.items()])

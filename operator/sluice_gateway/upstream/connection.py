"""One connection to an engine: it carries one request at a time, and is free again when its answer has arrived whole."""

import asyncio
from collections.abc import Callable
from typing import Final, cast

import httptools
from multidict import CIMultiDict

from sluice_gateway.upstream.answer import Answer
from sluice_gateway.upstream.errors import ConnectionLost, NotHttp, UpstreamError

MAX_HEAD_BYTES: Final = 64 * 1024  # of an answer; engines send less than one kilobyte
_NO_BODY: Final = frozenset({204, 304})


class EngineConnection(asyncio.Protocol):
    """A connection to the engine at `key`, host and port. `on_free` is called with it when it may carry the next request."""

    __slots__ = (
        "_answer", "_answered", "_complete", "_delimited", "_head_bytes", "_header_bytes", "_headers", "_keeps", "_on_free", "_parser",
        "_reason", "_transport", "free_since", "key",
    )  # fmt: skip

    def __init__(self, key: tuple[str, int], on_free: "Callable[[EngineConnection], None]") -> None:
        self.key = key
        self._on_free = on_free
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._answered: asyncio.Future[Answer] | None = None  # of a request without an answer
        self._answer: Answer | None = None
        self._headers: CIMultiDict[str] | None = None  # of the answer that is arriving
        self._reason = ""
        self._head_bytes = 0  # that have arrived of a head without an end
        self._header_bytes = 0  # of its headers
        self._complete = False  # whether the answer has arrived whole
        self._keeps = False  # whether the engine then keeps the connection
        self._delimited = True  # whether the head tells where the body ends
        self.free_since = 0.0  # event-loop seconds

    @property
    def usable(self) -> bool:
        """Whether it is open and carries no request."""
        transport = self._transport
        return self._answered is None and self._answer is None and transport is not None and not transport.is_closing()

    async def send(self, head: bytes, body: bytes) -> Answer:
        """Sends a request; returns its answer once the headers are there. Raises UpstreamError."""
        transport = self._transport
        if transport is None or not self.usable:
            raise ConnectionLost
        self._answered = asyncio.get_running_loop().create_future()
        if len(body) < MAX_HEAD_BYTES:
            transport.write(head + body)
        else:
            transport.write(head)
            transport.write(body)
        try:
            return await self._answered
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes it at once; what is on its way is lost."""
        self._answered = self._answer = None
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio's protocol ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports do not subclass asyncio's

    def data_received(self, data: bytes) -> None:
        """Parses what has arrived. Bytes that no request asked for close the connection."""
        if self._parser is None or (self._answered is None and (self._answer is None or self._complete)):
            self.close()
            return
        if self._answer is None:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
            if self._answer is None and self._head_bytes > MAX_HEAD_BYTES:
                raise NotHttp("its headers are too long")
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, NotHttp) as error:
            self._fail(NotHttp(str(error)))
            return
        if self._answer is not None:
            self._answer.wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end of the connection is the end of an answer whose head tells no other."""
        if exc is None and self._answer is not None and not self._delimited:
            self._answer.end()
            self._answer.wake()
        self._fail(ConnectionLost())
        self._transport = self._parser = None  # the parser refers to this object

    # --- httptools' callbacks --------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A second answer has no request."""
        if self._complete:
            raise NotHttp("more has come than one answer")

    def on_status(self, status: bytes) -> None:
        """Keeps the reason phrase."""
        self._reason += status.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keeps a header; those behind the body are of no use."""
        if self._answer is None:
            self._header_bytes += len(name) + len(value)
            if self._header_bytes > MAX_HEAD_BYTES:
                raise NotHttp("its headers are too long")
            if self._headers is None:
                self._headers = CIMultiDict()
            self._headers.add(name.decode("latin-1"), value.decode("utf-8", "surrogateescape"))

    def on_headers_complete(self) -> None:
        """The request has its answer, unless it is an interim one."""
        status = 0 if self._parser is None else self._parser.get_status_code()
        headers, reason = self._headers or CIMultiDict[str](), self._reason
        self._headers, self._reason = None, ""
        if status < 200 or self._answered is None:
            return
        self._head_bytes = self._header_bytes = 0
        self._delimited = status in _NO_BODY or "Content-Length" in headers or "Transfer-Encoding" in headers
        self._answer = Answer((status, reason, headers), self._reads, self._released)
        if not self._answered.done():
            self._answered.set_result(self._answer)
        self._answered = None

    def on_body(self, body: bytes) -> None:
        """Bytes of the body, without their framing."""
        if self._answer is not None:
            self._answer.feed(body)

    def on_message_complete(self) -> None:
        """The answer has arrived whole."""
        if self._answer is not None and self._parser is not None:
            self._complete, self._keeps = True, self._parser.should_keep_alive()
            self._answer.end()

    # ---------------------------------------------------------------------------------------------------------------

    def _reads(self, on: bool) -> None:
        if self._transport is not None and not self._transport.is_closing():
            (self._transport.resume_reading if on else self._transport.pause_reading)()

    def _released(self) -> None:
        """The answer is read no further: the connection carries the next request, or closes."""
        if self._answer is None:
            return
        transport, self._answer = self._transport, None
        whole = self._complete and self._keeps
        if whole and transport is not None and not transport.is_closing() and not transport.get_write_buffer_size():
            self._complete = False
            self._on_free(self)
        else:
            self.close()

    def _fail(self, error: UpstreamError) -> None:
        answered, answer = self._answered, self._answer
        if answered is not None and not answered.done():
            answered.set_exception(error)
        if answer is not None and not answer.ended:
            answer.fail(error)
        self._answered = None
        if self._transport is not None:
            self._transport.abort()

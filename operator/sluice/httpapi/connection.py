"""The HTTP connection adds deadlines, error bodies and a maximum age to aiohttp's protocol.

aiohttp answers parser errors with plain text and has no deadline for slow headers. A pooled connection may stay open
without limit and keep its client from new pods. This module solves all three below the handlers.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from sluice import contract
from sluice.httpapi.body_budget import BodyReservation
from sluice.httpapi.connection_limits import ConnectionLimits, RejectedConnection
from sluice.httpapi.errors import COMMON_HEADERS, ApiError, BadRequest, InternalError, RequestTimeout
from sluice.httpapi.streamed_response import has_begun
from sluice.httpapi.turns import Turns

LINGER_SECONDS: Final = 2.0  # seconds that an unread body is drained after the response
KEEPALIVE_SECONDS: Final = 75.0
MAX_HEADERS: Final = 100
READ_SECONDS: Final = 0.05  # within which the event loop reads what has arrived
READ_BYTES: Final = 8192  # read in one go; in chunks of one byte, which cost most, a turn of them takes about 10 ms

log = logging.getLogger("sluice.http")


class Connection(RequestHandler):
    """One client connection, which counts towards the port's limit until it is lost.

    `born` and `max_age` are in event-loop seconds. `deadline` is the time at which the current request must have
    arrived completely.
    """

    def __init__(
        self,
        manager: web.Server,
        *,
        limits: ConnectionLimits,
        turns: Turns,
        loop: asyncio.AbstractEventLoop,
        **settings: Any,
    ) -> None:
        super().__init__(manager, loop=loop, **settings)
        self._limits = limits
        self._turns = turns
        self._body: BodyReservation | None = None  # body of the current request, until it is released
        self.born = loop.time()
        self.max_age = contract.CONNECTION_MAX_AGE_SECONDS * random.uniform(0.9, 1.1)
        self.deadline = self.born + limits.receive_seconds
        self._head_timer: asyncio.TimerHandle | None = None
        self._begun = False  # whether a request has begun whose headers are incomplete

    @property
    def receive_seconds(self) -> float:
        """Seconds for a complete request."""
        return self._limits.receive_seconds

    @property
    def aged(self) -> bool:
        """Whether the next response closes the connection."""
        return self._limits.closing or self._loop.time() - self.born > self.max_age

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Starts the deadline of the first request. Beyond the limit, the connection is rejected with 503."""
        if not self._limits.can_connect():
            rejected = RejectedConnection(self._limits)
            cast(asyncio.Transport, transport).set_protocol(rejected)
            rejected.connection_made(transport)
            return
        self._limits.connections += 1
        self.deadline = self._loop.time() + self._limits.receive_seconds
        self._arm()
        super().connection_made(transport)

    async def start(self) -> None:
        """As aiohttp's. A client that leaves while its unread body is drained cancels this task in a frame that refers to the
        task: without its traceback the exception, which the task keeps, makes no cycle for a rare garbage collection.
        """
        try:
            await super().start()
        except asyncio.CancelledError as error:
            error.__traceback__ = None
            raise

    def data_received(self, data: bytes) -> None:
        """Takes bytes, which are processed in this turn of the event loop or later ones."""
        for start in range(0, len(data), READ_BYTES):
            part = data[start : start + READ_BYTES]
            if self._turns.admit(self, part):
                self.read(part)
            else:
                self.headers_done()  # the client has no part in the wait for a turn

    def read(self, data: bytes) -> None:
        """Processes bytes; the first bytes of a request start its deadline."""
        if self.transport is None:
            return
        begins = bool(data) and not self._begun and not self._request_in_progress and not self._messages
        if begins:
            self._begun = True
            self.deadline = self._loop.time() + self._limits.receive_seconds
        super().data_received(data)
        if begins and not self._messages:  # most requests come whole and need no timer
            self._arm()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Removes the connection from the count."""
        self.headers_done()
        self._limits.connections -= 1
        super().connection_lost(exc)

    def begin_body(self, on_evict: Callable[[], None]) -> None:
        """Registers the request's body; `on_evict` is called if it is cut off to make room for others."""
        self._body = BodyReservation(on_evict)

    def take_body(self, count: int) -> None:
        """Registers a body of `count` bytes that came whole, until `release_body`. Raises Unavailable if the budget is
        full.
        """
        self._body = BodyReservation(_nothing)
        self._limits.body_budget.take(self._body, count)

    def take_bytes(self, count: int) -> None:
        """Adds `count` arrived bytes of the request's body to the budget, until `release_body`. Raises Unavailable if
        it is full.
        """
        if self._body is not None:
            self._limits.body_budget.reserve(self._body, count)

    def check_body(self) -> None:
        """Raises Unavailable if the request's body has been cut off."""
        if self._body is not None:
            self._limits.body_budget.check(self._body)

    def body_arrived(self) -> None:
        """Marks the request's body as complete. Raises Unavailable if it has been cut off."""
        if self._body is not None:
            self._limits.body_budget.complete(self._body)

    def release_body(self) -> None:
        """Frees the bytes of the request's body, when neither it nor data parsed from it is held. Idempotent."""
        if self._body is not None:
            self._limits.body_budget.release(self._body)
            self._body = None

    def stop_idle_timer(self) -> None:
        """Stops the timer of an idle connection, which starts again after the response: a stream may last for minutes."""
        self.keep_alive(True)

    def headers_done(self) -> None:
        """Stops the header timer: the headers are complete, and the body has the rest of the deadline."""
        self._begun = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _arm(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
        self._head_timer = self._loop.call_at(self.deadline, self._head_due)

    def _head_due(self) -> None:
        """What has arrived while the event loop was busy is read first."""
        self._head_timer = self._loop.call_later(READ_SECONDS, self._head_overdue)

    def _head_overdue(self) -> None:
        self._head_timer = None
        if self._request_in_progress or self._messages or self.transport is None:
            return
        body = RequestTimeout(f"The request's headers did not arrive within {self.receive_seconds:g} s.").body()
        self._limits.on_rejected("headers_overdue")
        head = (
            "HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n"
        )
        head += "".join(f"{name}: {value}\r\n" for name, value in COMMON_HEADERS.items()) + "\r\n"
        self.transport.write(head.encode() + body)
        self.force_close()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """As aiohttp's, which would name itself and its version as the server."""
        if isinstance(resp, web.StreamResponse) and not resp.prepared:
            for name, value in COMMON_HEADERS.items():
                resp.headers.setdefault(name, value)
        return await super().finish_response(request, resp, start_time)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Returns an OpenAI error body for errors of aiohttp's parser. No part of the input is echoed.

        Raises ConnectionResetError if a response has begun.
        """
        self.headers_done()
        if has_begun(request):
            raise ConnectionResetError("a response has begun already")
        error: ApiError
        if status < 500:
            self._limits.on_rejected("malformed")
            error = BadRequest("The HTTP request is malformed or its request line or headers are too large.")
        else:
            log.error("a handler failed", exc_info=exc)
            error = InternalError("unknown")
        response = web.Response(status=error.status, body=error.body(), content_type="application/json")
        response.force_close()
        return response

    async def _drain_helper(self) -> None:
        """As aiohttp's, which keeps a cancelled waiter: without the reset, the next wait would be cancelled as well."""
        if self._drain_waiter is not None and self._drain_waiter.cancelled():
            self._drain_waiter = None
        await super()._drain_helper()

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Logs at debug level, because the cause is a fault of the peer."""
        log.debug(*args, **kw)


def _nothing() -> None:
    """A body that has arrived is not cut off."""


class HttpServer(web.Server):
    """aiohttp's low-level server with our connections. A handler is cancelled when its client disconnects."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        limits: ConnectionLimits,
    ) -> None:
        self._limits = limits
        self._turns = Turns(asyncio.get_running_loop())
        super().__init__(
            handler,
            handler_cancellation=True,
            keepalive_timeout=KEEPALIVE_SECONDS,
            lingering_time=LINGER_SECONDS,
            max_headers=MAX_HEADERS,
            auto_decompress=False,
            access_log=None,
        )

    def __call__(self) -> RequestHandler:
        """Returns a protocol for a new connection."""
        return Connection(self, limits=self._limits, turns=self._turns, loop=self._loop, **self._kwargs)

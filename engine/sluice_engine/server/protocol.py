"""The HTTP connection: aiohttp's protocol with the deadlines, error bodies and ageing it does not have.

aiohttp answers what its parser refuses with text and has no deadline for slow headers; a pooled connection may
live for ever and keep its client away from new pods. All three are settled here, below every handler.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from sluice import contract
from sluice_engine.server.errors import ApiError, BadRequest, InternalError, RequestTimeout
from sluice_engine.server.places import Places, TurnedAway
from sluice_engine.server.room import Held

RECEIVE_SECONDS: Final = 25.0  # for a whole request, headers and body, from its first byte
LINGER_SECONDS: Final = 2.0  # how long an unread body is drained after the answer
KEEPALIVE_SECONDS: Final = 75.0
MAX_HEADERS: Final = 100

log = logging.getLogger("sluice.http")


class Connection(RequestHandler):
    """One client connection. `born` and `max_age` in loop seconds; `deadline` is when the request at hand must have
    arrived completely. It has one of the port's places from when it is made until it is lost."""

    def __init__(
        self, manager: web.Server, *, places: Places, loop: asyncio.AbstractEventLoop, **settings: Any
    ) -> None:
        super().__init__(manager, loop=loop, **settings)
        self._places = places
        self._body: Held | None = None  # of the request at hand, which nobody has let go of
        self.born = loop.time()
        self.max_age = contract.CONNECTION_MAX_AGE_SECONDS * random.uniform(0.9, 1.1)
        self.deadline = self.born + RECEIVE_SECONDS
        self._head_timer: asyncio.TimerHandle | None = None
        self._begun = False  # whether bytes of a request have come whose headers are not complete

    @property
    def aged(self) -> bool:
        """Whether the next response should close the connection."""
        return self._loop.time() - self.born > self.max_age

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected: its first request has to come. Where there is no place, it is told so instead."""
        if not self._places.can_connect():
            stranger = TurnedAway(self._places)
            cast(asyncio.Transport, transport).set_protocol(stranger)
            stranger.connection_made(transport)
            return
        self._places.connections += 1
        self._arm()
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Bytes came: the first ones of a request start its deadline."""
        if data and not self._begun and not self._request_in_progress and not self._messages:
            self._begun = True
            self._arm()
        super().data_received(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client is gone."""
        self.headers_done()
        self._places.connections -= 1
        super().connection_lost(exc)

    def begin_body(self, on_cut: Callable[[], None]) -> None:
        """The request's body begins; `on_cut` is called where it has to make room for others."""
        self._body = Held(on_cut)

    def take_bytes(self, count: int) -> None:
        """So many bytes of the request's body are here, until `release_body`. Raises Unavailable where all bodies
        together are too many."""
        if self._body is not None:
            self._places.room.take(self._body, count)

    def check_body(self) -> None:
        """Raises Unavailable where the request's body has been cut off."""
        if self._body is not None:
            self._places.room.check(self._body)

    def body_arrived(self) -> None:
        """The request's body is complete. Raises Unavailable where it has been cut off."""
        if self._body is not None:
            self._places.room.arrived(self._body)

    def release_body(self) -> None:
        """Nothing is left of the request's body, nor of what was made from it. Idempotent."""
        if self._body is not None:
            self._places.room.give_back(self._body)
            self._body = None

    def headers_done(self) -> None:
        """The request's headers are complete; its body has the rest of the deadline."""
        self._begun = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _arm(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
        self.deadline = self._loop.time() + RECEIVE_SECONDS
        self._head_timer = self._loop.call_at(self.deadline, self._head_overdue)

    def _head_overdue(self) -> None:
        self._head_timer = None
        if self._request_in_progress or self.transport is None:
            return
        body = RequestTimeout(f"The request's headers did not arrive within {RECEIVE_SECONDS:g} s.").body()
        head = (
            "HTTP/1.1 408 Request Timeout\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.force_close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """What aiohttp's parser refuses, in OpenAI's shape. Nothing of the input is echoed."""
        self.headers_done()
        if request.writer.output_size > 0:
            raise ConnectionResetError("a response has begun already")
        error: ApiError
        if status < 500:
            error = BadRequest("The HTTP request is malformed or its request line or headers are too large.")
        else:
            log.error("a handler failed", exc_info=exc)
            error = InternalError("unknown")
        response = web.Response(status=error.status, body=error.body(), content_type="application/json")
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Faults of the peer are not ours to log at length."""
        log.debug(*args, **kw)


class HttpServer(web.Server):
    """aiohttp's low-level server, making our connections. A handler is cancelled when its client leaves."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        places: Places,
    ) -> None:
        self._places = places
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
        """A protocol for a new connection."""
        return Connection(self, places=self._places, loop=self._loop, **self._kwargs)

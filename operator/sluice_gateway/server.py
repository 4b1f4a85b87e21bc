"""The gateway's HTTP server: routes, limits, start and drain.

A thin reverse proxy. It serves only the inference paths and accepts only host names of this machine, which blocks DNS
rebinding (a web page that points its own name at 127.0.0.1). It limits the number of requests in flight.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Self

import aiohttp
from aiohttp import web

from sluice import contract
from sluice_gateway.backends import Backend
from sluice_gateway.errors import error_response
from sluice_gateway.headers import LOCAL_HOSTS, host_name
from sluice_gateway.holding import HoldQueue
from sluice_gateway.proxy import Proxy

MAX_BODY_BYTES: Final = 8 * 1024 * 1024
MAX_IN_FLIGHT: Final = 4096
HEADER_BYTES: Final = 8190

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PortTaken(Exception):
    """Another program listens on the port. The message has the host and the port."""


class Gateway:
    """One URL over the replicas that `backends()` returns at the moment of each request."""

    def __init__(
        self,
        backends: Callable[[], Sequence[Backend]],
        *,
        host: str = "127.0.0.1",
        port: int = 8080,
        body_seconds: float = 30.0,
        hold_queue: HoldQueue | None = None,
    ) -> None:
        """Configure the gateway; `start` opens the socket.

        `port` 0 selects a free port. `body_seconds` is the time in which a client must send its request. `hold_queue` holds
        requests while no replica is ready; without it none are held.
        """
        self._backends = backends
        self._host = host
        self._port = port
        self._body_seconds = body_seconds
        self._hold_queue = hold_queue or HoldQueue()
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def url(self) -> str:
        """Base URL for clients, without /v1."""
        return f"http://{self._host}:{self._port}"

    @property
    def in_flight(self) -> int:
        """Number of requests in flight."""
        return self._in_flight

    async def start(self) -> None:
        """Listen. Raises PortTaken."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=15),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        app = web.Application(middlewares=[self._guard], client_max_size=MAX_BODY_BYTES)
        proxy = Proxy(self._session, self._backends, self._body_seconds, self._hold_queue)
        for path in contract.POSTED_PATHS:
            app.router.add_post(path, proxy.handle)
        for path in contract.READ_PATHS:
            app.router.add_get(path, proxy.handle, allow_head=False)
        app.router.add_get(f"{contract.PATH_MODELS}/{{model:.+}}", proxy.handle, allow_head=False)
        # handler_cancellation: a client disconnect cancels its handler, which aborts the engine's work.
        self._runner = web.AppRunner(
            app,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
            shutdown_timeout=1.0,
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port, backlog=1024)
        try:
            await site.start()
        except OSError as error:
            await self.close()
            if error.errno != errno.EADDRINUSE:
                raise
            raise PortTaken(f"port {self._port} on {self._host} is taken by another program") from error
        self._port = self._runner.addresses[0][1]

    def drain(self) -> None:
        """Reject new requests; requests in flight complete."""
        self._draining = True

    async def idle(self) -> None:
        """Return once no request is in flight."""
        await self._idle.wait()

    async def close(self) -> None:
        """Close all sockets."""
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if host_name(request.headers.get("Host", "")) not in LOCAL_HOSTS | {self._host}:
            return error_response(400, "the Host header names another machine: use localhost", "invalid_request_error")
        if self._draining:
            return _unavailable("shutting down", "draining")
        if self._in_flight >= MAX_IN_FLIGHT:
            return _unavailable(f"{MAX_IN_FLIGHT} requests are in flight", "overloaded")
        self._in_flight += 1
        self._idle.clear()
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return error_response(404, "no such path", "invalid_request_error", code="not_found")
        except web.HTTPMethodNotAllowed as error:
            allow = {"Allow": ", ".join(sorted(error.allowed_methods))}
            return error_response(405, "method not allowed here", "invalid_request_error", headers=allow)
        except web.HTTPRequestEntityTooLarge:
            return error_response(413, f"the body is over {MAX_BODY_BYTES} bytes", "invalid_request_error")
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()


def _unavailable(why: str, code: str) -> web.Response:
    return error_response(
        503, f"{why}: try again soon", "service_unavailable", code=code, headers={contract.HEADER_RETRY_AFTER: "1"}
    )

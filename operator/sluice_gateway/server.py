"""The gateway's HTTP server: routes, limits, start and drain.

It serves only the inference paths and limits the number of requests in flight. On a laptop it accepts only host names of
this machine, which blocks DNS rebinding (a web page that points its own name at 127.0.0.1).
"""

import asyncio
import contextlib
import errno
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self

import aiohttp
from aiohttp import web

from sluice import contract
from sluice_gateway.admin import AdminRoutes
from sluice_gateway.errors import error_response
from sluice_gateway.headers import LOCAL_HOSTS, host_name
from sluice_gateway.holding import HoldQueue
from sluice_gateway.metrics import GatewayMetrics
from sluice_gateway.models import merged_models
from sluice_gateway.proxy import Proxy, ProxyOptions
from sluice_gateway.replicas.backend import Backend
from sluice_gateway.replicas.fleet import Fleet
from sluice_gateway.replicas.scraper import Scraper
from sluice_gateway.routing import PolicyName

MAX_IN_FLIGHT: Final = 8192
HEADER_BYTES: Final = 8190

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PortTaken(Exception):
    """Another program listens on the port. The message has the host and the port."""


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """Options of a gateway. Port 0 selects a free port; without an admin port there is none.

    `session_header` names the header by which clients name their conversations; None: they cannot.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    admin_port: int | None = None
    policy: PolicyName = "PrefixAware"
    session_header: str | None = None
    body_seconds: float = 30.0
    any_host: bool = False


class Gateway:
    """One URL over the replicas that `backends()` returns at the moment of each request."""

    def __init__(
        self,
        backends: Callable[[], Sequence[Backend]],
        options: GatewayOptions = GatewayOptions(),
        hold_queue: HoldQueue | None = None,
    ) -> None:
        """Configure the gateway; `start` opens the sockets. Without a `hold_queue` no request is held."""
        self.fleet = Fleet(backends, options.policy)
        self._options = options
        self._hold_queue = hold_queue or HoldQueue()
        self._metrics = GatewayMetrics()
        self._admin = AdminRoutes(self.fleet, self._hold_queue, self._metrics)
        self._runners: list[web.AppRunner] = []
        self._session: aiohttp.ClientSession | None = None
        self._scraping: asyncio.Task[None] | None = None
        self._port, self._admin_port = options.port, options.admin_port
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = self._closing = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def url(self) -> str:
        """Base URL for clients, without /v1."""
        return f"http://{self._options.host}:{self._port}"

    @property
    def admin_url(self) -> str:
        """Base URL of the admin port."""
        return f"http://{self._options.host}:{self._admin_port}"

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
        self.scraper = Scraper(self._session, self.fleet)
        try:
            await self.scraper.scrape()  # before the first request: until then any replica may have any model
            self._scraping = asyncio.create_task(self.scraper.run())
            self._port = await self._listen(self._data_app(self._session), self._options.port)
            if self._options.admin_port is not None:
                self._admin_port = await self._listen(self._admin.app(), self._options.admin_port)
        except BaseException:
            await self.close()
            raise

    def _data_app(self, session: aiohttp.ClientSession) -> web.Application:
        app = web.Application(middlewares=[self._guard])
        options = ProxyOptions(self._options.body_seconds, self._options.session_header)
        proxy = Proxy(session, self.fleet, self._hold_queue, self._metrics, options)

        async def list_models(request: web.Request) -> web.StreamResponse:
            serving = self.fleet.models()
            merged = await merged_models(session, request, serving) if len(serving) > 1 else None
            return merged or await proxy.handle(request)

        app.on_response_prepare.append(self._close_if_draining)
        for path in contract.POSTED_PATHS:
            app.router.add_post(path, proxy.handle)
        for path in contract.READ_PATHS:
            handler = list_models if path == contract.PATH_MODELS else proxy.handle
            app.router.add_get(path, handler, allow_head=False)
        app.router.add_get(f"{contract.PATH_MODELS}/{{model:.+}}", proxy.handle, allow_head=False)
        return app

    async def _listen(self, app: web.Application, port: int) -> int:
        """Serve the application; returns its port. Raises PortTaken."""
        # handler_cancellation: a client disconnect cancels its handler, which aborts the engine's work.
        runner = web.AppRunner(
            app,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
            shutdown_timeout=1.0,
        )
        self._runners.append(runner)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._options.host, port, backlog=1024).start()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise PortTaken(f"port {port} on {self._options.host} is taken by another program") from error
        return int(runner.addresses[0][1])

    def unready(self) -> None:
        """Report unready, and close connections after their responses; new requests are still served."""
        self._admin.ready = False
        self._closing = True

    def drain(self) -> None:
        """Reject new requests; requests in flight complete."""
        self.unready()
        self._draining = True

    async def idle(self) -> None:
        """Return once no request is in flight."""
        await self._idle.wait()

    async def close(self) -> None:
        """Close all sockets."""
        if self._scraping is not None:
            self._scraping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._scraping
        for runner in self._runners:
            await runner.cleanup()
        if self._session is not None:
            await self._session.close()

    async def _close_if_draining(self, _: web.Request, response: web.StreamResponse) -> None:
        if self._closing:
            response.force_close()
            response.headers["Connection"] = "close"

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        hosts = LOCAL_HOSTS | {self._options.host}
        if not self._options.any_host and host_name(request.headers.get("Host", "")) not in hosts:
            return error_response(400, "the Host header names another machine: use localhost", "invalid_request_error")
        if self._draining:
            return _unavailable("shutting down", "draining")
        if self._in_flight >= MAX_IN_FLIGHT:
            return _unavailable(f"{MAX_IN_FLIGHT} requests are in flight", "overloaded")
        self._in_flight += 1
        self._metrics.in_flight.set(self._in_flight)
        self._idle.clear()
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return error_response(404, "no such path", "invalid_request_error", code="not_found")
        except web.HTTPMethodNotAllowed as error:
            allow = {"Allow": ", ".join(sorted(error.allowed_methods))}
            return error_response(405, "method not allowed here", "invalid_request_error", headers=allow)
        finally:
            self._in_flight -= 1
            self._metrics.in_flight.set(self._in_flight)
            if not self._in_flight:
                self._idle.set()


def _unavailable(why: str, code: str) -> web.Response:
    return error_response(
        503, f"{why}: try again soon", "service_unavailable", code=code, headers={contract.HEADER_RETRY_AFTER: "1"}
    )

"""The clients' port: every request passes here before it is read further, and every error of the gateway leaves here.

The raw path is matched before any decoding: `//v1/models`, `%2e%2e` or a trailing slash match no route.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from aiohttp import web

from sluice import contract
from sluice.auth.caller import rate_headers
from sluice.httpapi.body import release
from sluice.httpapi.connection import Connection
from sluice.httpapi.errors import ApiError, ClientTooSlow, InternalError, unknown_path
from sluice.httpapi.hosts import check_host
from sluice.httpapi.methods import handler_of
from sluice.httpapi.streamed_response import has_begun
from sluice.tracing import Tracing
from sluice_gateway.errors import draining, error_response, in_flight_full
from sluice_gateway.headers import request_id_of
from sluice_gateway.keys.gatekeeper import Gatekeeper
from sluice_gateway.metrics import GatewayMetrics
from sluice_gateway.request_log import RequestWay
from sluice_gateway.streaming import PASSING, break_off

MAX_IN_FLIGHT: Final = 8192
FLUSH_SECONDS: Final = 1.0  # for the last bytes of requests that are cut off, as engines give

Handler = Callable[[web.BaseRequest, RequestWay], Awaitable[web.StreamResponse]]
Routes = Mapping[str, Mapping[str, Handler]]  # path → method → handler

log = logging.getLogger("sluice.gateway")


def routes(proxied: Handler, models: Handler, model: Handler) -> Routes:
    """The inference paths; below `/v1/models/` any name."""
    found: dict[str, dict[str, Handler]] = {path: {"POST": proxied} for path in contract.POSTED_PATHS}
    for path in contract.READ_PATHS:
        found[path] = {"GET": models if path == contract.PATH_MODELS else proxied}
    return found | {f"{contract.PATH_MODELS}/": {"GET": model}}


class DataPort:
    """Counts, bounds and routes the requests of clients."""

    def __init__(
        self,
        metrics: GatewayMetrics,
        served: Routes,
        gatekeeper: Gatekeeper,
        *,
        loopback: bool,
        tracing: Tracing | None = None,
    ) -> None:
        """`gatekeeper` identifies every caller before the body is read. `loopback`: only loopback names are accepted in the
        Host header. `tracing` None: no traces."""
        self._tracing = tracing
        self._metrics = metrics
        self._routes = served
        self._gatekeeper = gatekeeper
        self._loopback = loopback
        self._idle = asyncio.Event()
        self._idle.set()
        self._handling: dict[asyncio.Task[Any], web.BaseRequest] = {}
        self._is_cut = False
        self.draining = False
        metrics.in_flight.set_function(lambda: self.in_flight)

    @property
    def in_flight(self) -> int:
        """Number of requests in flight."""
        return len(self._handling)

    async def idle(self) -> None:
        """Return once no request is in flight."""
        await self._idle.wait()

    async def cut(self) -> None:
        """End the requests in flight with an error: as the last event of a stream that has begun, as a 503 before.

        Clients have FLUSH_SECONDS to read it; then their connections are aborted.
        """
        self.draining = self._is_cut = True
        for task in list(self._handling):
            task.cancel()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.idle(), FLUSH_SECONDS)
        for request in list(self._handling.values()):
            _abandoned(request)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Respond to one request, count it and log its way."""
        if isinstance(request.protocol, Connection):
            request.protocol.headers_done()
        way = RequestWay(request_id_of(request.headers), request.rel_url.raw_path, time.monotonic())
        if self._tracing is not None and request.method == "POST":
            way.span = self._tracing.begin(f"gateway POST {way.path}", request.headers, way.began_at)
        status: int | None = None
        try:
            response = await self._respond(request, way)
            if request.transport is not None and not request.transport.is_closing():
                status = response.status
            if not response.prepared:
                _complete(request, way, response)
            return response
        finally:
            release(request)
            request.pop(PASSING, None)  # it refers to the request: a cycle that only a garbage collection would find
            self._metrics.answered(status)
            if request.method == "POST":
                now = time.monotonic()
                way.log(status, now)
                way.trace(status, now)

    async def _respond(self, request: web.BaseRequest, way: RequestWay) -> web.StreamResponse:
        try:
            return await self._counted(self._admitted(request, way), request, way)
        except ApiError as error:
            way.error = error.code
            self._metrics.rejected(error)
            return error_response(request, error)
        except (ConnectionError, ClientTooSlow):  # the client has gone, or does not read
            return _abandoned(request)
        except Exception:  # it fails the request, not the gateway
            log.exception("request %s failed", way.request_id)
            way.error = "internal_error"
            if not has_begun(request):
                return error_response(request, InternalError(way.request_id))
            return _abandoned(request)

    async def _counted(self, handler: Handler, request: web.BaseRequest, way: RequestWay) -> web.StreamResponse:
        """Handle a request, which is in flight meanwhile. Raises ApiError."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a request is handled by a task")
        self._handling[task] = request
        self._idle.clear()
        try:
            return await handler(request, way)
        except asyncio.CancelledError:
            if not self._is_cut:  # its client has disconnected
                raise
            task.uncancel()
            return await self._cut_off(request, way)
        finally:
            del self._handling[task]
            if not self._handling:
                self._idle.set()

    async def _cut_off(self, request: web.BaseRequest, way: RequestWay) -> web.StreamResponse:
        """End a request at the end of a drain. Raises Unavailable before its response has begun."""
        error, passing = draining(), request.get(PASSING)
        if not has_begun(request):
            raise error
        way.error = error.code
        if passing is None:
            return _abandoned(request)
        await break_off(passing, error)
        return passing.response

    def _admitted(self, request: web.BaseRequest, way: RequestWay) -> Handler:
        """What answers the request. Raises ApiError."""
        check_host(request, loopback=self._loopback)
        handler = self._handler(request)
        way.tenant = self._gatekeeper.identify(request).tenant or None
        if self.draining:
            raise draining()
        if self.in_flight >= MAX_IN_FLIGHT:
            raise in_flight_full(MAX_IN_FLIGHT)
        return handler

    def _handler(self, request: web.BaseRequest) -> Handler:
        path, named = request.rel_url.raw_path, f"{contract.PATH_MODELS}/"
        methods = self._routes.get(path if path == named or not path.startswith(named) else named)
        if methods is None or path == named:
            raise unknown_path()
        return handler_of(methods, request.method)


def _complete(request: web.BaseRequest, way: RequestWay, response: web.StreamResponse) -> None:
    """Add what every response of the gateway itself has; one that is passed on has begun already."""
    response.headers[contract.HEADER_REQUEST_ID] = way.request_id
    response.headers.update(rate_headers(request))
    if isinstance(request.protocol, Connection) and request.protocol.aged:
        response.force_close()


def _abandoned(request: web.BaseRequest) -> web.Response:
    """Abort the connection. aiohttp receives a response that it cannot send."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)

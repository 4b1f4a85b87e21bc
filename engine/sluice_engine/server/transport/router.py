"""Routes a request to its handler by exact path; every other request gets an error in OpenAI's format.

The raw path is matched before any decoding: `//v1/models`, `%2e%2e` or a trailing slash match no route, so they cannot
reach a handler.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

from aiohttp import web

from sluice.auth.access import AccessControl
from sluice.httpapi.body import release
from sluice.httpapi.connection import Connection
from sluice.httpapi.errors import unknown_path
from sluice.httpapi.hosts import check_host
from sluice.httpapi.methods import handler_of
from sluice.httpapi.streamed_response import has_begun
from sluice_engine.server.context import Serving, request_id_of
from sluice_engine.server.errors import ApiError, ClientTooSlow, InternalError, NotFound
from sluice_engine.server.request_log import entry_of, log_end
from sluice_engine.server.transport.cors import CORS_HEADERS, Cors
from sluice_engine.server.transport.request_span import record_spans

Handler = Callable[[web.BaseRequest, Serving], Awaitable[web.StreamResponse]]
Routes = Mapping[str, Mapping[str, Handler]]  # path → method → handler; a path ending in "*" matches what begins so

NO_CORS: Final = Cors(())

log = logging.getLogger("sluice.http")


class Router:
    """The request handler of one port.

    `loopback` states whether the port is bound to the loopback interface. If it is, only loopback names are accepted in
    the Host header, as a protection against DNS rebinding by web pages.
    """

    def __init__(
        self,
        serving: Serving,
        routes: Routes,
        *,
        loopback: bool,
        access: AccessControl | None = None,
        public: Routes = MappingProxyType({}),
        cors: Cors = NO_CORS,
    ) -> None:
        """`access` authorizes every request on a known route; None for the admin port, which checks its own token.
        `public` are further routes, which need no key.
        """
        self._public = public
        self._cors = cors
        self._access = access
        self._serving = serving
        self._routes = routes
        self._beginnings = [(path[:-1], methods) for path, methods in routes.items() if path.endswith("*")]
        self._loopback = loopback

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Responds to one request. An exception in a handler affects this request only."""
        connection = request.protocol
        if isinstance(connection, Connection):
            connection.headers_done()
        if request.method != "POST":
            return await self._respond(request)
        entry_of(request)
        status: int | None = None
        try:
            response = await self._respond(request)
            if request.transport is not None and not request.transport.is_closing():
                status = response.status
            return response
        finally:
            log_end(request, self._serving.served_name, status)
            self._trace(request, status)

    def _trace(self, request: web.BaseRequest, status: int | None) -> None:
        if self._serving.tracing is not None and self._access is not None:
            served, now = self._serving.served_name, time.monotonic()
            record_spans(self._serving.tracing, request, entry_of(request), served, status, now)

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._route(request)
        except ApiError as error:
            entry_of(request).error = error.code
            return self._serving.response(
                request, error.status, error.body_for(request.rel_url.raw_path), error.headers()
            )
        except (ConnectionError, ClientTooSlow):
            return self._abandon(request)
        except Exception:  # an exception fails the request, not the server
            log.exception("request %s failed", request_id_of(request))
            if has_begun(request):
                return self._abandon(request)
            failure = InternalError(request_id_of(request))
            entry_of(request).error = failure.code
            return self._serving.response(request, failure.status, failure.body_for(request.rel_url.raw_path))

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        check_host(request, loopback=self._loopback)
        if cors := self._cors.headers(request):
            request[CORS_HEADERS] = cors
        path = request.rel_url.raw_path
        methods = self._public.get(path) or self._routes.get(path)
        if methods is None:
            methods = next(
                (found for start, found in self._beginnings if path.startswith(start) and path != start), None
            )
        if methods is None:
            raise unknown_path() if self._public else NotFound("This path does not exist.", code="not_found")
        if (preflight := self._cors.preflight(request, methods)) is not None:
            return self._serving.response(request, 204, b"", preflight)
        handler = handler_of(methods, request.method)
        if self._access is not None and path not in self._public:
            self._access.authorize(request, self._serving.served_name)
        with self._serving.busy:
            try:
                return await handler(request, self._serving)
            finally:
                release(request)

    def _abandon(self, request: web.BaseRequest) -> web.StreamResponse:
        """Aborts the connection of a lost or too slow client. aiohttp receives a response that it cannot send."""
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=500)

"""From a request line to a handler: exact paths only, everything else is refused in OpenAI's shape.

The raw path decides, before any decoding: `//v1/models`, `%2e%2e` or a trailing slash name nothing here, so they
can never reach a handler by a side door.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from aiohttp import web

from sluice_engine.server.body import release
from sluice_engine.server.errors import ApiError, BadRequest, ClientTooSlow, InternalError, MethodNotAllowed, NotFound
from sluice_engine.server.protocol import Connection
from sluice_engine.server.serving import Serving, request_id_of

Handler = Callable[[web.BaseRequest, Serving], Awaitable[web.StreamResponse]]
Routes = Mapping[str, Mapping[str, Handler]]  # path → method → handler; a path ending in "*" takes any last part

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HOST: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(:\d{1,5})?", re.ASCII)

log = logging.getLogger("sluice.http")


class Router:
    """The handler of a whole port. `loopback` says whether it is bound to this machine alone: then only names of
    this machine are answered, so that no web page can reach it by rebinding its own name."""

    def __init__(self, serving: Serving, routes: Routes, *, loopback: bool) -> None:
        self._serving = serving
        self._routes = routes
        self._loopback = loopback

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answers one request; whatever goes wrong in a handler stays in this request."""
        connection = request.protocol
        if isinstance(connection, Connection):
            connection.headers_done()
        try:
            return await self._route(request)
        except ApiError as error:
            return self._serving.response(request, error.status, error.body(), error.headers())
        except (ConnectionError, ClientTooSlow):
            return self._abandon(request)
        except Exception:  # a request can fail, the server cannot
            log.exception("request %s failed", request_id_of(request))
            if request.writer.output_size > 0:
                return self._abandon(request)
            failure = InternalError(request_id_of(request))
            return self._serving.response(request, failure.status, failure.body())

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        self._check_host(request)
        path = request.rel_url.raw_path
        methods = self._routes.get(path)
        if methods is None and "%" not in path:
            methods = self._routes.get(path[: path.rfind("/") + 1] + "*")
        if methods is None:
            raise NotFound("There is nothing at this path.", code="not_found")
        handler = methods.get(request.method)
        if handler is None:
            allowed = ", ".join(methods)
            raise MethodNotAllowed(f"This path takes {allowed}.", allowed)
        with self._serving.busy():
            try:
                return await handler(request, self._serving)
            finally:
                release(request)

    def _check_host(self, request: web.BaseRequest) -> None:
        hosts = request.headers.getall("Host", [])
        found = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if found is None:
            raise BadRequest("The Host header is missing or malformed.", code="invalid_host")
        if self._loopback and found["name"].lower() not in LOOPBACK:
            raise BadRequest("This server listens on this machine only and answers to its names.", code="invalid_host")

    def _abandon(self, request: web.BaseRequest) -> web.StreamResponse:
        """The client is gone or hopeless: the connection ends here, aiohttp gets a response it cannot send."""
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=500)

"""Cross-origin requests of web pages (the Fetch standard's CORS protocol): off, unless origins are given.

A key in the Authorization header is sent by the page's own code, so that credentials of the browser are never allowed.
"""

from collections.abc import Collection
from typing import Final

from aiohttp import hdrs, web

ANY: Final = "*"
MAX_AGE_SECONDS: Final = "600"  # for which a browser keeps the answer to a preflight
CORS_HEADERS: Final = web.RequestKey("cors_headers", dict[str, str])


class Cors:
    """The origins whose pages may read responses. `*` is every origin."""

    def __init__(self, origins: Collection[str]) -> None:
        self._origins = frozenset(origins)

    def headers(self, request: web.BaseRequest) -> dict[str, str]:
        """Returns the headers of every response to this request; none for an origin that is not allowed."""
        if not self._origins or (origin := request.headers.get(hdrs.ORIGIN)) is None:
            return {}
        if ANY in self._origins:
            return {hdrs.ACCESS_CONTROL_ALLOW_ORIGIN: ANY, hdrs.ACCESS_CONTROL_EXPOSE_HEADERS: ANY}
        headers: dict[str, str] = {hdrs.VARY: hdrs.ORIGIN}
        if origin in self._origins:
            headers |= {hdrs.ACCESS_CONTROL_ALLOW_ORIGIN: origin, hdrs.ACCESS_CONTROL_EXPOSE_HEADERS: ANY}
        return headers

    def preflight(self, request: web.BaseRequest, methods: Collection[str]) -> dict[str, str] | None:
        """Returns the headers that answer a preflight of a path with these methods; None if the request is none."""
        if request.method != hdrs.METH_OPTIONS or hdrs.ACCESS_CONTROL_REQUEST_METHOD not in request.headers:
            return None
        headers = self.headers(request)
        if hdrs.ACCESS_CONTROL_ALLOW_ORIGIN not in headers:
            return None
        asked = request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS, "")
        return headers | {
            hdrs.ACCESS_CONTROL_ALLOW_METHODS: ", ".join(methods),
            hdrs.ACCESS_CONTROL_ALLOW_HEADERS: asked,
            hdrs.ACCESS_CONTROL_MAX_AGE: MAX_AGE_SECONDS,
        }

"""GET /health, /version and /openapi.json, which load balancers, clients and tools ask for without a key."""

from importlib.metadata import version
from typing import Final

import orjson
from aiohttp import web

from sluice import contract
from sluice_engine.server.context import Serving
from sluice_engine.server.openapi.served import get_document
from sluice_engine.server.transport.router import Routes

VERSION: Final = orjson.dumps({"version": version("sluice")})


async def health(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """GET /health: 200 while requests are accepted, else 503; the reasons are on the admin port's /readyz."""
    serves = serving.lifecycle.ready and serving.live() is None
    return serving.response(request, 200 if serves else 503, b"")


async def get_version(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """GET /version."""
    return serving.response(request, 200, VERSION)


def routes() -> Routes:
    """Returns the routes that need no key."""
    return {
        contract.PATH_HEALTH: {"GET": health},
        contract.PATH_VERSION: {"GET": get_version},
        contract.PATH_OPENAPI: {"GET": get_document},
    }

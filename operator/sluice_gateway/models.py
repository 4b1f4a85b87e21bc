"""GET /v1/models: the engines' own lists, merged. Each engine lists what the caller's key may use."""

import json
from collections.abc import Mapping
from typing import Any, Final

import aiohttp
from aiohttp import web

from sluice import contract
from sluice_gateway.headers import engine_headers, request_id_of
from sluice_gateway.replicas.backend import Backend
from sluice_gateway.streaming import UPSTREAM_ERRORS, read_at_most

_TIMEOUT: Final = aiohttp.ClientTimeout(total=5.0)
_MOST_BYTES: Final = 1024 * 1024


async def merged_models(
    session: aiohttp.ClientSession, request: web.BaseRequest, serving: Mapping[str, Backend]
) -> web.Response | None:
    """The models of all replicas in `serving`. None if none of them answers with a list."""
    found: dict[str, Any] = {}
    answered = False
    headers = engine_headers(request, request_id_of(request.headers), 1)
    for backend in serving.values():
        try:
            url = backend.url + contract.PATH_MODELS
            async with session.get(url, headers=headers, timeout=_TIMEOUT, allow_redirects=False) as response:
                body = await read_at_most(response.content, _MOST_BYTES)
                data = json.loads(body)["data"] if response.status == 200 else None
                if isinstance(data, list):
                    answered = True
                    found |= {str(one["id"]): one for one in data}
        except (*UPSTREAM_ERRORS, ValueError, KeyError, TypeError, RecursionError):
            continue
    return web.json_response({"object": "list", "data": list(found.values())}) if answered else None

"""GET /v1/models: the engines' own lists, merged, and the models of the catalog that have no replica.

Each engine lists what the caller's key may use.
"""

import asyncio
import json
from typing import Final
from urllib.parse import unquote

import aiohttp
from aiohttp import web

from sluice import contract
from sluice.auth.caller import caller_of
from sluice.httpapi.models_document import Entry, models_document
from sluice_gateway.catalog.base import Catalog
from sluice_gateway.headers import engine_headers, request_id_of, tenant_of
from sluice_gateway.replicas.answers import ERRORS, read_at_most
from sluice_gateway.replicas.backend import Backend
from sluice_gateway.replicas.fleet import Fleet
from sluice_gateway.request_log import RequestWay
from sluice_gateway.routes import Handler

_TIMEOUT: Final = aiohttp.ClientTimeout(total=5.0)
_MOST_BYTES: Final = 1024 * 1024

Entries = dict[str, Entry]  # by the model's name


class ModelRoutes:
    """`list` and `one` are the handlers; `proxy` passes a request on to a replica."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        fleet: Fleet,
        catalog: Catalog,
        proxy: Handler,
    ) -> None:
        self._session = session
        self._fleet = fleet
        self._catalog = catalog
        self._proxy = proxy

    async def list(self, request: web.BaseRequest, way: RequestWay) -> web.StreamResponse:
        """All models that the caller may use."""
        serving, resting = self._fleet.models(), self._without_replica(request)
        if len(serving) <= 1 and not resting:
            return await self._proxy(request, way)
        lists = await asyncio.gather(*(self._listed(request, backend) for backend in serving.values()))
        found: Entries = {}
        for each in lists:
            found |= each or {}
        if not resting and all(each is None for each in lists):
            return await self._proxy(request, way)
        return web.json_response(models_document([*found.values(), *resting.values()]))

    async def one(self, request: web.BaseRequest, way: RequestWay) -> web.StreamResponse:
        """One model by its name."""
        name = unquote(request.rel_url.raw_path.removeprefix(f"{contract.PATH_MODELS}/"))
        entry = self._without_replica(request).get(name)
        return await self._proxy(request, way) if entry is None else web.json_response(entry)

    def _without_replica(self, request: web.BaseRequest) -> Entries:
        """The models that no replica can list. Without a replica a key is not verified; without a key there is none."""
        entries = self._catalog.entries(with_keys=bool(tenant_of(request.headers)))
        caller = caller_of(request)
        return {name: entry for name, entry in entries.items() if caller.may_use(name) and not self._fleet.ready(name)}

    async def _listed(self, request: web.BaseRequest, backend: Backend) -> Entries | None:
        """One engine's list. None if it does not answer with a list."""
        headers = engine_headers(request, request_id_of(request.headers), 1)
        try:
            url = backend.url + contract.PATH_MODELS
            async with self._session.get(url, headers=headers, timeout=_TIMEOUT, allow_redirects=False) as response:
                body = await read_at_most(response.content, _MOST_BYTES)
                data = json.loads(body)["data"] if response.status == 200 else None
                return {str(one["id"]): one for one in data} if isinstance(data, list) else None
        except (*ERRORS, ValueError, KeyError, TypeError, RecursionError):
            return None

"""Small servers in place of engines: a data port, and an admin port with a load document that a test may change."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import aiohttp
from aiohttp import web

from sluice_gateway.replicas.backend import Backend
from sluice_gateway.routing import Canary
from sluice_gateway.server import Gateway, GatewayOptions

CHAT = "/v1/chat/completions"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def load_document(**changes: Any) -> dict[str, Any]:
    """A ready and idle replica of the model "chat"."""
    terms = {"base": 0.02, "prefill_token": 1e-4, "prefill_context": 0.0, "sequence": 1e-3, "kv_token": 0.0}
    return {
        "model": "chat", "phase": "serving", "ready": True, "running": 0, "waiting": 0, "limit": 64, "ttft_target_seconds": 2.0,
        "prefill_tokens": 0, "output_tokens": 20.0, "kv_held_tokens": 0, "kv_total_tokens": 100_000, "step_model": terms,
    } | changes  # fmt: skip


@dataclass
class FakeEngine:
    """`seen` are the requests that it received; `answer` replaces its answer."""

    name: str
    load: Any = field(default_factory=load_document)
    answer: Handler | None = None
    seen: list[web.Request] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    backend: Backend = field(init=False)
    read_token: str = ""  # that its load needs
    silent: asyncio.Event | None = None  # its load is not answered before this event
    load_asked: asyncio.Event = field(default_factory=asyncio.Event)
    leads_to: str | None = None  # where its admin port sends clients
    runners: list[web.AppRunner] = field(default_factory=list)

    async def start(self, data_port: int = 0) -> None:
        """Listen on two ports."""
        data, admin = web.Application(client_max_size=16 * 1024 * 1024), web.Application()
        data.router.add_post("/v1/{path:.+}", self._posted)
        data.router.add_get("/v1/models", self._models)
        data.router.add_get("/v1/models/{name:.+}", self._model)
        data.router.add_get("/health", self._health)
        admin.router.add_get("/load", self._load)
        ports = [await self._listen(data, data_port), await self._listen(admin, 0)]
        self.backend = Backend(self.name, "127.0.0.1", ports[0], f"http://127.0.0.1:{ports[1]}")

    async def _listen(self, app: web.Application, port: int) -> int:
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        self.runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True).start()
        return int(runner.addresses[0][1])

    async def stop(self) -> None:
        """Close both ports."""
        runners, self.runners = self.runners, []
        for runner in runners:
            await runner.cleanup()

    async def _posted(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        self.seen.append(request)
        if self.answer is not None:
            return await self.answer(request)
        return web.json_response({"from": self.name}, headers=self.headers)

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": self.load["model"], "object": "model"}]})

    async def _model(self, request: web.Request) -> web.Response:
        return web.json_response(
            {"id": request.match_info["name"], "object": "model", "created": 1, "owned_by": "sluice"}
        )

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _load(self, request: web.Request) -> web.Response:
        self.load_asked.set()
        if self.read_token and request.headers.get("Authorization") != f"Bearer {self.read_token}":
            return web.Response(status=401)
        if self.silent is not None:
            await self.silent.wait()
        if self.leads_to is not None:
            raise web.HTTPFound(self.leads_to)
        return web.Response(text=self.load) if isinstance(self.load, str) else web.json_response(self.load)


@asynccontextmanager
async def gateway_over(
    *engines: FakeEngine, canaries: Mapping[str, Canary] = MappingProxyType({}), **options: Any
) -> AsyncIterator[Gateway]:
    """A gateway that has read the engines' loads once, and reads them again at each call of `scrape`.

    `canaries` are the canary revisions by model; a test may change them.
    """
    async with AsyncExitStack() as stack:
        for engine in engines:
            await engine.start()
            stack.push_async_callback(engine.stop)
        gateway = Gateway(
            lambda: [engine.backend for engine in engines],
            GatewayOptions(port=0, **options),
            canaries=lambda: canaries,
        )
        await stack.enter_async_context(gateway)
        await gateway.scraper.scrape()
        yield gateway


async def queued(admin_url: str, count: int) -> None:
    """Wait until so many requests wait in the queue of the gateway with this admin port."""
    async with asyncio.timeout(60), aiohttp.ClientSession() as client:
        while True:
            async with client.get(admin_url + "/metrics") as response:
                lines = [line for line in (await response.text()).splitlines() if "queue_requests{" in line]
            if sum(float(line.rsplit(" ", 1)[1]) for line in lines) == count:
                return

"""A server in front of the real API server that answers some requests itself, as an overloaded or failing one does.

What is faulty is decided per request: its status, a cut connection, silence, or that an answer is lost after the request was
carried out. Everything else is passed on, watches included.
"""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from ssl import create_default_context
from typing import Final
from weakref import WeakSet

import aiohttp
from aiohttp import AddrInfoType, web

from tests.kube.api_server import ApiServer, free_ports, kubeconfig

CUT: Final = 0  # in place of a status: the connection ends without an answer
SILENT: Final = -1  # the request is never answered
GONE: Final = 410  # of a watch: its first event says that the resourceVersion is too old
_OWN: Final = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding"})
_MOST_BYTES: Final = 16 * 1024 * 1024
_PATIENCE: Final = 10.0  # seconds until the API server has agreed to the end of each connection


@dataclass(frozen=True, slots=True)
class Fault:
    """What a request meets. `is_late`: only after it was carried out."""

    status: int
    retry_after: int | None = None
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    at: float  # monotonic seconds
    method: str
    path: str
    is_watch: bool


@dataclass
class FaultyServer:
    """`judge` may be changed at any time, from any thread."""

    server: ApiServer
    kubeconfig: Path
    judge: Callable[[Asked], Fault | None] = lambda _asked: None
    asked: list[Asked] = field(default_factory=list)
    faults: list[tuple[Asked, Fault]] = field(default_factory=list)
    watches: set[asyncio.Transport] = field(default_factory=set)
    _resumed: asyncio.Event = field(default_factory=asyncio.Event)
    _sockets: WeakSet[socket.socket] = field(default_factory=WeakSet)  # of the connections to the API server
    loop: asyncio.AbstractEventLoop | None = None
    session: aiohttp.ClientSession | None = None

    def cut_watches(self) -> None:
        """End the connections of all watches."""
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self._cut)

    @contextmanager
    def stalled_watches(self) -> Iterator[None]:
        """Watches that stay open and deliver nothing until the block ends."""
        if self.loop is None:
            raise RuntimeError("the server does not run")
        self.loop.call_soon_threadsafe(self._resumed.clear)
        try:
            yield
        finally:
            self.loop.call_soon_threadsafe(self.resume)

    def resume(self) -> None:
        """Let the watches deliver."""
        self._resumed.set()

    def _cut(self) -> None:
        for each in tuple(self.watches):
            each.abort()

    def since(self, at: float) -> list[Asked]:
        """The requests since that moment."""
        return [each for each in self.asked if each.at >= at]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        asked = Asked(time.monotonic(), request.method, request.path, "watch" in request.query)
        self.asked.append(asked)
        fault = self.judge(asked)
        if fault is not None:
            self.faults.append((asked, fault))
            if not fault.is_late:
                return await _faulty(request, fault)
        kept = {name: value for name, value in request.headers.items() if name.lower() not in _OWN}
        body = await request.read() or None  # an empty one would get a content type
        url = self.server.url + request.path_qs
        async with self._session().request(request.method, url, headers=kept, data=body) as answer:
            if fault is not None:
                await answer.read()
                return await _faulty(request, fault)
            return await self._pass_on(request, answer, asked)

    async def close(self) -> None:
        """Close the connections to the API server, and wait until each of them is."""
        if self.session is not None:
            await self.session.close()
        async with asyncio.timeout(_PATIENCE):
            while any(each.fileno() >= 0 for each in self._sockets):  # noqa: ASYNC110  # there is no event of it
                await asyncio.sleep(0.01)

    def _session(self) -> aiohttp.ClientSession:
        if self.session is None:
            connector = aiohttp.TCPConnector(
                ssl=create_default_context(cafile=str(self.server.certificate)),
                limit=0,
                force_close=True,
                socket_factory=self._socket,
            )
            self.session = aiohttp.ClientSession(
                connector=connector, auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None)
            )
        return self.session

    def _socket(self, address: AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = address
        made = socket.socket(family, kind, protocol)
        self._sockets.add(made)
        return made

    async def _pass_on(self, request: web.Request, answer: aiohttp.ClientResponse, asked: Asked) -> web.StreamResponse:
        kept = {name: value for name, value in answer.headers.items() if name.lower() not in _OWN}
        response = web.StreamResponse(status=answer.status, headers=kept)
        await response.prepare(request)
        transport = request.transport
        if asked.is_watch and isinstance(transport, asyncio.Transport):
            self.watches.add(transport)
        try:
            async for chunk in answer.content.iter_any():
                if asked.is_watch:
                    await self._resumed.wait()
                await response.write(chunk)
            await response.write_eof()
        finally:
            if isinstance(transport, asyncio.Transport):
                self.watches.discard(transport)
        return response


@contextmanager
def faulty(server: ApiServer, folder: Path) -> Iterator[FaultyServer]:
    """The server, without faults at first, until the block ends."""
    (port,) = free_ports(1)
    folder.mkdir(exist_ok=True)
    found = FaultyServer(server, kubeconfig(folder, f"http://127.0.0.1:{port}"))
    started, stopped = threading.Event(), asyncio.Event()

    async def serve() -> None:
        found.loop = asyncio.get_running_loop()
        found.resume()
        application = web.Application(client_max_size=_MOST_BYTES)
        application.router.add_route("*", "/{path:.*}", found.handle)
        runner = web.AppRunner(application, shutdown_timeout=0.1, access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        started.set()
        await stopped.wait()
        await runner.cleanup()
        await found.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    started.wait(30)
    try:
        yield found
    finally:
        if found.loop is not None:
            found.loop.call_soon_threadsafe(stopped.set)
        thread.join(30)


async def _faulty(request: web.Request, fault: Fault) -> web.StreamResponse:
    if fault.status == SILENT:
        await asyncio.Event().wait()
    if fault.status == CUT:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": fault.status, "message": "by the test"}
    if fault.status == GONE:
        status["reason"] = "Expired"
        return web.json_response({"type": "ERROR", "object": status})
    headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
    return web.json_response(status, status=fault.status, headers=headers)

"""Overload over real sockets: 503 at once beyond a port's limits, and an unaffected admin port."""

import asyncio
import json
import resource
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import aiohttp
import pytest
from aiohttp import web

from sluice.httpapi.body import read_object
from sluice.httpapi.body_budget import BodyBudget
from sluice.httpapi.connection import HttpServer
from sluice.httpapi.connection_limits import (
    ADMIN_CONNECTIONS,
    MAX_CONNECTIONS,
    MAX_REJECTED,
    OTHER_FILES,
    RECEIVE_SECONDS,
    ConnectionLimits,
    data_connections,
    raise_open_files,
)
from sluice_engine.config import EngineOptions
from sluice_engine.server.api import admin
from sluice_engine.server.context import Serving
from sluice_engine.server.engine.client import EngineClient
from sluice_engine.server.lifecycle import Lifecycle
from sluice_engine.server.metrics import EngineMetrics
from sluice_engine.server.transport.router import Router, Routes
from sluice_engine.server.transport.sockets import bind

PLACES = 8
BODIES = 200_000
SMALL_BODIES = 100_000


@dataclass
class Ports:
    """A data port with few limits, whose only handler reads a body and waits, and a separate admin port."""

    data: int
    admin: int
    limits: ConnectionLimits
    held: asyncio.Event
    go_on: asyncio.Event

    async def post(self, size: int) -> tuple[int, dict[str, str], bytes]:
        body = b'{"a":"' + b"x" * (size - 8) + b'"}'
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                f"http://127.0.0.1:{self.data}/", data=body, headers={"Content-Type": "application/json"}
            ) as r,
        ):
            return r.status, dict(r.headers), await r.read()


@pytest.fixture
async def ports() -> AsyncIterator[Ports]:
    options = EngineOptions(model="m", served_name="m")
    client = EngineClient(options, None)  # type: ignore[arg-type]  # no engine is started, so nothing listens
    serving = Serving(options, EngineMetrics(options), Lifecycle(0.0, lambda: None), client)
    held, go_on = asyncio.Event(), asyncio.Event()

    async def hold(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
        await read_object(request)
        held.set()
        await go_on.wait()
        return serving.response(request, 200, b"{}")

    limits = ConnectionLimits(PLACES, BodyBudget(BODIES, SMALL_BODIES))
    runners: list[web.ServerRunner] = []

    async def listen(routes: Routes, room: ConnectionLimits) -> int:
        runner = web.ServerRunner(HttpServer(Router(serving, routes, loopback=True), room), shutdown_timeout=0.1)
        await runner.setup()
        runners.append(runner)
        listener = bind("127.0.0.1", 0, "--port")
        await web.SockSite(runner, listener, backlog=1024).start()
        return int(listener.getsockname()[1])

    data_port = await listen({"/": {"POST": hold}}, limits)
    admin_port = await listen(admin.routes(admin.AdminToken(None, loopback=True)), ConnectionLimits(4))
    yield Ports(data_port, admin_port, limits, held, go_on)
    go_on.set()
    for runner in runners:
        await runner.cleanup()
    serving.threads.shutdown()


async def until(condition: Callable[[], bool]) -> None:
    """Yields to other tasks until the condition holds."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("did not happen within 50 s")


async def opened(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def stalled(ports: Ports, sent: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that sends part of a body and stops."""
    before = ports.limits.body_budget.count
    reader, writer = await opened(ports.data)
    writer.write(
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 8000000\r\n\r\n"
    )
    writer.write(b"x" * sent)
    await until(lambda: ports.limits.body_budget.count == before + sent)
    return reader, writer


async def test_a_request_that_came_while_the_event_loop_was_busy_is_no_408(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports.go_on.set()
    reader, writer = await opened(ports.data)
    await until(lambda: ports.limits.connections == 1)
    writer.write(
        b'POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{"a":""}'
    )
    loop = asyncio.get_running_loop()
    before = loop.time
    monkeypatch.setattr(loop, "time", lambda: before() + RECEIVE_SECONDS)  # as if it had done something else
    assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    writer.close()


async def test_a_connection_beyond_the_limit_gets_503_with_retry_after(ports: Ports) -> None:
    ports.go_on.set()
    idle = [await opened(ports.data) for _ in range(PLACES)]
    await until(lambda: ports.limits.connections == PLACES)
    status, headers, raw = await ports.post(1000)
    error = json.loads(raw)["error"]
    assert (status, error["code"], error["type"]) == (503, "connections_full", "service_unavailable")
    assert headers["Retry-After"] == "1"
    assert str(PLACES) in error["message"]
    for _, writer in idle:
        writer.close()
    await until(lambda: ports.limits.connections == 0 == ports.limits.rejected)
    assert (await ports.post(1000))[0] == 200


async def test_a_full_data_port_leaves_health_and_metrics_reachable(ports: Ports) -> None:
    crowd = await asyncio.gather(*(opened(ports.data) for _ in range(PLACES + MAX_REJECTED + 300)))
    await until(lambda: ports.limits.connections == PLACES)
    assert ports.limits.rejected <= MAX_REJECTED
    async with aiohttp.ClientSession() as session:
        for path in ("/livez", "/metrics"):
            async with session.get(f"http://127.0.0.1:{ports.admin}{path}") as response:
                assert response.status == 200
    assert ports.limits.connections == PLACES  # all connections were open during these requests
    for _, writer in crowd:
        writer.close()
    await until(lambda: ports.limits.connections == 0 == ports.limits.rejected)


async def test_bodies_in_use_are_bounded_in_bytes(ports: Ports) -> None:
    first = asyncio.create_task(ports.post(BODIES))
    await ports.held.wait()
    assert ports.limits.body_budget.count == BODIES
    status, headers, raw = await ports.post(BODIES)
    assert (status, json.loads(raw)["error"]["code"], headers["Retry-After"]) == (503, "bodies_full", "1")
    small: Awaitable[tuple[int, dict[str, str], bytes]] = asyncio.create_task(ports.post(1000))
    await until(lambda: ports.limits.body_budget.count == BODIES + 1000)
    ports.go_on.set()
    assert (await first)[0] == (await small)[0] == 200
    assert ports.limits.body_budget.count == 0


@pytest.mark.parametrize(("sent", "newcomer", "left"), [(95_000, 150_000, 0), (95_000, 1000, 2), (50_000, 40_000, 1)])
async def test_stalled_bodies_are_cut_off_for_arriving_ones(ports: Ports, sent: int, newcomer: int, left: int) -> None:
    ports.go_on.set()
    clients = [await stalled(ports, sent) for _ in range(2)]
    assert (await ports.post(newcomer))[0] == 200
    assert ports.limits.body_budget.count == left * sent
    for reader, writer in clients[: 2 - left]:
        told = await reader.readuntil(b"}}")
        assert told.startswith(b"HTTP/1.1 503 ")
        assert b"had not arrived completely and was cut off" in told
        assert b"Retry-After: 1" in told
        writer.close()
    for _, writer in clients:
        writer.close()
    await until(lambda: ports.limits.body_budget.count == 0 == ports.limits.connections)


async def test_a_disconnect_frees_the_bytes_of_the_body(ports: Ports) -> None:
    _, writer = await stalled(ports, 50_000)
    writer.close()
    await until(lambda: ports.limits.body_budget.count == 0 == ports.limits.connections)


def test_a_low_soft_limit_of_open_files_is_raised_for_all_connections() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = MAX_CONNECTIONS + ADMIN_CONNECTIONS + OTHER_FILES
    most = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (800, hard))
        raise_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, hard)
        assert data_connections() == min(MAX_CONNECTIONS, most - ADMIN_CONNECTIONS - OTHER_FILES)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

"""Phases, connection age and orphaned processes, without a model."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from sluice import contract
from sluice.httpapi.connection import Connection, HttpServer
from sluice.httpapi.connection_limits import ConnectionLimits
from sluice_engine import messages
from sluice_engine.config import EngineOptions
from sluice_engine.server.app import reap_orphans
from sluice_engine.server.context import Serving
from sluice_engine.server.engine.client import EngineClient, Stream
from sluice_engine.server.errors import ClientTooSlow
from sluice_engine.server.lifecycle import Lifecycle, Phase
from sluice_engine.server.metrics import EngineMetrics
from sluice_engine.server.transport.router import Router
from sluice_engine.server.transport.sockets import bind


async def test_drain_is_unready_at_once_and_rejects_after_the_grace_period() -> None:
    told: list[Phase] = []
    lifecycle = Lifecycle(0.0, lambda: told.append(lifecycle.phase))
    rejection = lifecycle.rejection()
    assert rejection is not None
    assert rejection.code == "loading"
    lifecycle.loaded()
    assert (lifecycle.ready, lifecycle.closing, lifecycle.rejection()) == (True, False, None)
    lifecycle.drain()
    assert (lifecycle.ready, lifecycle.closing, lifecycle.rejection()) == (False, True, None)
    lifecycle.drain()
    await lifecycle.wait_rejecting()
    rejection = lifecycle.rejection()
    assert rejection is not None
    assert (rejection.code, int(rejection.headers()["Retry-After"]) >= 1) == ("draining", True)
    assert told == [Phase.REJECTING]


@pytest.fixture
async def ageing() -> AsyncIterator[tuple[str, HttpServer]]:
    """A port whose connections can be given an old `born` time."""
    options = EngineOptions(model="m", served_name="m")
    lifecycle = Lifecycle(0.0, lambda: None)
    client = EngineClient(options, None)  # type: ignore[arg-type]  # no engine is started, so nothing listens
    serving = Serving(options, EngineMetrics(options), lifecycle, client)

    async def hello(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
        return serving.response(request, 200, b"{}")

    server = HttpServer(Router(serving, {"/": {"GET": hello}}, loopback=True), ConnectionLimits(16))
    runner = web.ServerRunner(server)
    await runner.setup()
    listener = bind("127.0.0.1", 0, "--port")
    await web.SockSite(runner, listener).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/", server
    await runner.cleanup()
    serving.threads.shutdown()


async def test_a_connection_past_its_maximum_age_closes_after_its_response(ageing: tuple[str, HttpServer]) -> None:
    url, server = ageing
    async with aiohttp.ClientSession() as session:
        async with session.get(url) as young:
            assert young.headers.get("Connection") != "close"
        (connection,) = server.connections
        assert isinstance(connection, Connection)
        age = contract.CONNECTION_MAX_AGE_SECONDS
        assert 0.9 * age <= connection.max_age <= 1.1 * age
        connection.born -= 1.2 * age
        async with session.get(url) as old:
            assert old.headers["Connection"] == "close"
        async with session.get(url) as fresh:
            assert fresh.headers.get("Connection") != "close"


async def test_an_unread_stream_is_bounded() -> None:
    stream = Stream()
    delta = messages.Delta("a", (1,))
    pushed = 0
    while stream.push(delta):
        pushed += 1
        assert pushed < 100_000
    with pytest.raises(ClientTooSlow):
        await stream.take()


def test_orphans_are_reaped_and_the_engine_process_is_not() -> None:
    orphan = os.posix_spawn(sys.executable, [sys.executable, "-c", ""], {})
    os.waitid(os.P_PID, orphan, os.WEXITED | os.WNOWAIT)
    reap_orphans({orphan})
    os.kill(orphan, signal.SIGCONT)  # the zombie still exists
    reap_orphans(())
    with pytest.raises(ProcessLookupError):
        os.kill(orphan, signal.SIGCONT)


async def test_taking_from_a_stream_waits_for_the_next_step() -> None:
    stream = Stream()
    taking = asyncio.create_task(stream.take())
    await asyncio.sleep(0)
    stream.push(messages.Delta("a", (1,)))
    stream.push(messages.Delta("a", (2,)))
    assert [delta.token_ids for delta in await taking] == [(1,), (2,)]

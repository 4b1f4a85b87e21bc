"""Requests that wait in the gateway: none is sent beyond a replica's limit, and what ends their wait."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from sluice_gateway.queueing import QueueLimits
from sluice_gateway.replicas.backend import Backend
from sluice_gateway.replicas.state import UNASKED_LIMIT, ReplicaState
from sluice_gateway.server import Gateway, GatewayOptions
from tests.gateway.engines import CHAT, FakeEngine, gateway_over, load_document, queued
from tests.gateway.test_fleet import chat, metric


@dataclass
class Held:
    """An engine whose requests end when the test lets them."""

    limit: int = 2
    arrived: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    release: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    order: list[str] = field(default_factory=list)
    now: int = 0
    most: int = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.order.append(str(body["user"]))
        self.now += 1
        self.most = max(self.most, self.now)
        self.arrived.release()
        try:
            await self.release.acquire()
        finally:
            self.now -= 1
        return web.json_response({})

    def engine(self, name: str) -> FakeEngine:
        return FakeEngine(name, load_document(limit=self.limit), self.answer)


@asynccontextmanager
async def asking(gateway: Gateway) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(gateway.url) as client:
        yield client


async def ask(client: aiohttp.ClientSession, name: str, **fields: object) -> tuple[int, Any, str | None]:
    async with client.post(CHAT, json=chat("a") | {"user": name} | fields) as response:
        return response.status, await response.json(), response.headers.get("Retry-After")


LIMITS = QueueLimits(requests=3)


async def test_no_request_waits_in_an_engine_and_all_are_answered_by_priority() -> None:
    held = Held(limit=2)
    engine = held.engine("r0")
    async with gateway_over(engine, queue=QueueLimits(), admin_port=0) as gateway, asking(gateway) as client:
        asked = [asyncio.create_task(ask(client, f"first {n}")) for n in range(2)]
        for _ in range(2):
            await held.arrived.acquire()
        for priority, name in ((-1, "low"), (0, "normal"), (5, "high")):
            asked.append(asyncio.create_task(ask(client, name, priority=priority)))
            await queued(gateway.admin_url, len(asked) - 2)
        assert (held.now, gateway.waiting, gateway.in_flight) == (2, 3, 5)
        for label in ("low", "normal", "high"):
            assert await metric(gateway, f'sluice_gateway_queue_requests{{priority="{label}"}} 1.0')
        for _ in range(5):
            held.release.release()
        assert [status for status, _, _ in await asyncio.gather(*asked)] == [200] * 5
    assert held.most == 2
    assert held.order[2:] == ["high", "normal", "low"]
    waited = [request.headers.get("x-sluice-waited-ms") for request in engine.seen]
    assert waited[:2] == [None, None]
    assert all(ms is None or ms.isdigit() for ms in waited)


def test_a_new_replica_gets_a_few_requests_until_it_was_asked_for_its_load() -> None:
    state = ReplicaState(Backend("r0", "127.0.0.1", 1, "http://127.0.0.1:2"))
    state.in_flight = UNASKED_LIMIT - 1
    assert state.has_room
    state.in_flight = UNASKED_LIMIT
    assert not state.has_room
    state.is_asked = True
    assert state.has_room, "it has no load document, so its limit is never known"


@pytest.mark.parametrize("fault", ["it refuses the token", "its admin port is closed", "it has no admin port"])
async def test_a_replica_without_a_load_gets_all_requests(fault: str) -> None:
    held, count = Held(), 3 * UNASKED_LIMIT
    engine = held.engine("r0")
    if fault == "it refuses the token":
        engine.read_token = "unknown"
    await engine.start()
    if fault != "it refuses the token":
        admin = None if fault == "it has no admin port" else "http://127.0.0.1:1"
        engine.backend = replace(engine.backend, admin_url=admin)
    backends: list[Backend] = []
    options = GatewayOptions(port=0, queue=QueueLimits())
    async with Gateway(lambda: backends, options) as gateway, asking(gateway) as client:
        backends.append(engine.backend)  # after the gateway's start, as a replica that becomes ready
        async with asyncio.timeout(60):
            asked = [asyncio.create_task(ask(client, str(n))) for n in range(count)]
            for _ in range(count):
                await held.arrived.acquire()
            for _ in range(count):
                held.release.release()
            assert [status for status, _, _ in await asyncio.gather(*asked)] == [200] * count
    await engine.stop()


async def test_a_request_starts_where_there_is_room_although_its_prefix_is_cached_elsewhere() -> None:
    helds = [Held(limit=1), Held(limit=1)]
    engines = [held.engine(f"r{n}") for n, held in enumerate(helds)]
    turn = chat("Explain the KV cache. " * 100)
    async with gateway_over(*engines, queue=QueueLimits()) as gateway, asking(gateway) as client:
        asked = [asyncio.create_task(ask(client, str(n), **turn)) for n in range(2)]
        await asyncio.gather(*(held.arrived.acquire() for held in helds))
        for held in helds:
            held.release.release()
        await asyncio.gather(*asked)


async def test_a_full_queue_rejects_the_lowest_priority_with_a_retry_after_and_clients_that_leave_make_room() -> None:
    held = Held(limit=1)
    async with gateway_over(held.engine("r0"), queue=LIMITS, admin_port=0) as gateway, asking(gateway) as client:
        first = asyncio.create_task(ask(client, "running"))
        await held.arrived.acquire()
        low = [asyncio.create_task(ask(client, f"low {n}", priority=-1)) for n in range(3)]
        await queued(gateway.admin_url, 3)
        status, body, retry_after = await ask(client, "one more", priority=-1)
        assert (status, body["error"]["code"], retry_after) == (503, "queue_full", "1")
        high = asyncio.create_task(ask(client, "high", priority=1))
        done, waiting = await asyncio.wait(low, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result()[0] for task in done] == [503]
        for task in waiting:
            task.cancel()
        await queued(gateway.admin_url, 1)
        held.release.release()
        held.release.release()
        assert [status for status, _, _ in await asyncio.gather(first, high)] == [200, 200]
    assert held.order == ["running", "high"]


async def test_a_scrape_that_shows_a_higher_limit_starts_those_that_wait() -> None:
    held = Held(limit=1)
    engine = held.engine("r0")
    async with gateway_over(engine, queue=QueueLimits(), admin_port=0) as gateway, asking(gateway) as client:
        asked = [asyncio.create_task(ask(client, str(n))) for n in range(3)]
        await queued(gateway.admin_url, 2)
        engine.load = load_document(limit=3)
        for _ in range(3):
            await held.arrived.acquire()
        assert held.now == 3
        for _ in range(3):
            held.release.release()
        await asyncio.gather(*asked)


async def test_a_request_whose_wait_was_predicted_wrong_is_told_so() -> None:
    held = Held(limit=1)
    engines = [held.engine("r0")]
    async with (
        gateway_over(*engines, queue=QueueLimits(wait_seconds=0.05), admin_port=0) as gateway,
        asking(gateway) as client,
    ):
        running = asyncio.create_task(ask(client, "running"))
        await held.arrived.acquire()
        status, body, _ = await ask(client, "waits")
        assert (status, body["error"]["code"]) == (503, "wait_too_long")
        held.release.release()
        assert (await running)[0] == 200


async def test_the_overhead_is_that_until_the_request_is_sent_without_its_wait() -> None:
    held = Held(limit=1)
    engine = held.engine("r0")
    async with gateway_over(engine, queue=QueueLimits(), admin_port=0) as gateway, asking(gateway) as client:
        asked = [asyncio.create_task(ask(client, "running"))]
        await held.arrived.acquire()
        asked.append(asyncio.create_task(ask(client, "waits")))
        await queued(gateway.admin_url, 1)
        assert await metric(gateway, "sluice_gateway_overhead_seconds_count 1.0"), "the other one is not sent yet"
        for _ in asked:
            held.release.release()
        await asyncio.gather(*asked)
        assert await metric(gateway, "sluice_gateway_overhead_seconds_count 2.0")

"""Requests that lose their replica while all others are at their limits: they wait as others do, and start by priority."""

import asyncio
import json
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from sluice_gateway.queueing import QueueLimits
from sluice_gateway.server import Gateway
from tests.gateway.engines import CHAT, FakeEngine, gateway_over, queued
from tests.gateway.test_fleet import chat
from tests.gateway.test_queue import Held, ask, asking

RESUMABLE = {"stream": True, "resume": True}


@dataclass
class Breaks(Held):
    """An engine whose first request loses its connection, or gets a 503, when the test lets it: its stream with `begun`."""

    begun: bool = False
    status: int | None = None
    breaks: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if self.order:
            return await super().answer(request)
        self.order.append((await request.json())["user"])
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        if self.begun:
            await response.prepare(request)
            await response.write(event("a", 5))
        self.arrived.release()
        await self.breaks.wait()
        if self.status is not None:
            return web.json_response({}, status=self.status, headers={"Retry-After": "7"})
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


class GoesOn(Held):
    """An engine that completes broken streams when the test lets it."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        response = await super().answer(request)
        if "resume" in await request.json():
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await response.write(event("b", 6) + b"data: [DONE]\n\n: tokens \n\n")
        return response


def event(text: str, token: int) -> bytes:
    chunk = {"id": "s", "created": 7, "choices": [{"delta": {"content": text}}]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n: tokens " + str(token).encode() + b"\n\n"


async def started(held: Held) -> None:
    async with asyncio.timeout(60):
        await held.arrived.acquire()


def fleet(breaks: Breaks, held: Held) -> tuple[FakeEngine, FakeEngine]:
    return breaks.engine("breaks"), held.engine("held")


async def lose(gateway: Gateway, breaks: Breaks, waiting: int) -> None:
    """The first request loses its replica; then so many wait."""
    breaks.breaks.set()
    await queued(gateway.admin_url, waiting)


@pytest.mark.parametrize("status", [None, 503], ids=["lost", "rejected"])
async def test_a_request_that_loses_its_replica_waits_for_room_at_another_one(status: int | None) -> None:
    breaks, held = Breaks(limit=1, status=status), Held(limit=1)
    async with (
        gateway_over(*fleet(breaks, held), policy="RoundRobin", queue=QueueLimits(), admin_port=0) as gateway,
        asking(gateway) as client,
    ):
        asked = [asyncio.create_task(ask(client, "lost"))]
        await started(breaks)
        asked.append(asyncio.create_task(ask(client, "running")))
        await started(held)
        await lose(gateway, breaks, 1)
        later = asyncio.create_task(ask(client, "later"))  # where the other one has been there is room
        await started(breaks)
        high = asyncio.create_task(ask(client, "high", priority=1))
        low = asyncio.create_task(ask(client, "low", priority=-1))
        await queued(gateway.admin_url, 3)
        for _ in range(4):
            held.release.release()
        assert [status for status, _, _ in await asyncio.gather(*asked, high, low)] == [200] * 4
        breaks.release.release()
        assert (await later)[0] == 200
    assert (held.most, held.order) == (1, ["running", "high", "lost", "low"])
    assert breaks.order == ["lost", "later"]


async def test_a_request_whose_place_in_the_queue_is_taken_is_told_when_to_come_back() -> None:
    breaks, held = Breaks(limit=1), Held(limit=1)
    limits = QueueLimits(requests=1)
    async with (
        gateway_over(*fleet(breaks, held), policy="RoundRobin", queue=limits, admin_port=0) as gateway,
        asking(gateway) as client,
    ):
        lost = asyncio.create_task(ask(client, "lost"))
        await started(breaks)
        running = asyncio.create_task(ask(client, "running"))
        await started(held)
        await lose(gateway, breaks, 1)
        at_breaks = asyncio.create_task(ask(client, "at breaks"))
        await started(breaks)
        high = asyncio.create_task(ask(client, "high", priority=1))
        status, body, retry_after = await lost
        assert (status, body["error"]["code"], retry_after) == (503, "displaced", "1")
        held.release.release()
        held.release.release()
        breaks.release.release()
        assert [each[0] for each in await asyncio.gather(running, high, at_breaks)] == [200] * 3
    assert held.order == ["running", "high"]


async def test_a_request_that_waits_for_a_replica_that_goes_too_is_answered_at_once() -> None:
    breaks, held = Breaks(limit=1, status=503), Breaks(limit=1, status=503)
    async with (
        gateway_over(*fleet(breaks, held), policy="RoundRobin", queue=QueueLimits(), admin_port=0) as gateway,
        asking(gateway) as client,
    ):
        first = asyncio.create_task(ask(client, "first"))
        await started(breaks)
        other = asyncio.create_task(ask(client, "other"))
        await started(held)
        await lose(gateway, breaks, 1)
        (_, state) = gateway.fleet.states()
        gateway.fleet.out(state, "it refuses connections")
        held.breaks.set()
        status, _, retry_after = await first
        assert (status, retry_after) == (503, "7"), "what its replica has told it"
        breaks.release.release()
        assert (await other)[0] == 200


@pytest.mark.parametrize("taken", [False, True], ids=["kept", "displaced"])
async def test_a_broken_stream_waits_for_room_and_goes_on(taken: bool) -> None:
    breaks, held = Breaks(limit=1, begun=True), GoesOn(limit=1)
    limits = QueueLimits(requests=1)
    async with (
        gateway_over(*fleet(breaks, held), policy="RoundRobin", queue=limits, admin_port=0) as gateway,
        asking(gateway) as client,
        client.post(CHAT, json=chat("a") | {"user": "stream"} | RESUMABLE) as response,
    ):
        await started(breaks)
        others = [asyncio.create_task(ask(client, "running"))]
        await started(held)
        await lose(gateway, breaks, 1)
        at_breaks = asyncio.create_task(ask(client, "at breaks"))
        await started(breaks)
        if taken:
            others.append(asyncio.create_task(ask(client, "high", priority=1)))
            async with asyncio.timeout(60):
                assert b'"code":"upstream_lost"' in await response.read()
        for _ in range(2):
            held.release.release()
        if not taken:
            said = event("a", 5) + event("b", 6) + b"data: [DONE]\n\n"
            assert await response.read() == b"".join(
                each + b"\n\n" for each in said.split(b"\n\n")[:-1] if not each.startswith(b": ")
            )
        await asyncio.gather(*others)
        breaks.release.release()
        await at_breaks
    assert (held.most, held.order) == (1, ["running", "high" if taken else "stream"])

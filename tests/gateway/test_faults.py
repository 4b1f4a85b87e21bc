"""Replicas that stop, answer garbage or are removed: they are left out, and nothing of them is kept."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from sluice_gateway.replicas.backend import Backend
from sluice_gateway.replicas.fleet import Fleet
from sluice_gateway.replicas.scraper import Scraper
from sluice_gateway.replicas.state import REFUSES
from sluice_gateway.routing import Prompt
from sluice_gateway.server import Gateway, GatewayOptions
from tests.gateway.engines import CHAT, FakeEngine, gateway_over
from tests.gateway.test_fleet import LONG, ask, chat, chosen, metric


@contextlib.asynccontextmanager
async def impatient(gateway: Gateway) -> AsyncIterator[Scraper]:
    """A scraper for which a replica is silent at once."""
    async with aiohttp.ClientSession() as session:
        yield Scraper(session, gateway.fleet, silent_seconds=0.05)


async def test_a_stopped_replica_is_out_and_the_requests_that_it_holds_go_to_another_one() -> None:
    arrived, resumed = asyncio.Event(), asyncio.Event()

    async def stopped(_: web.Request) -> web.Response:
        arrived.set()
        await resumed.wait()
        return web.json_response({"from": "r0"})

    engines = [FakeEngine("r0", answer=stopped), FakeEngine("r1")]
    async with gateway_over(*engines, policy="RoundRobin", admin_port=0) as gateway, impatient(gateway) as scraper:
        first = asyncio.create_task(ask(gateway, chat("a")))
        await arrived.wait()
        engines[0].silent = asyncio.Event()
        await scraper.scrape()
        assert (await first)[1] == {"from": "r1"}
        assert [await chosen(gateway, chat("a")) for _ in range(3)] == ["r1"] * 3
        assert await metric(gateway, 'sluice_gateway_replica_faults_total{kind="silent"} 1.0')
        engines[0].silent.set()
        resumed.set()
        await gateway.scraper.scrape()
        assert {await chosen(gateway, chat("a")) for _ in range(2)} == {"r0", "r1"}


async def test_a_document_that_was_asked_for_before_a_fault_does_not_bring_a_replica_back() -> None:
    engine = FakeEngine("r0")
    async with gateway_over(engine) as gateway:
        (state,) = gateway.fleet.states()
        engine.silent, asked = asyncio.Event(), engine.load_asked
        asked.clear()
        scraping = asyncio.create_task(gateway.scraper.scrape())
        await asked.wait()
        gateway.fleet.out(state, REFUSES)
        engine.silent.set()
        await scraping
        assert state.fault == REFUSES
        await gateway.scraper.scrape()
        assert state.fault is None


async def test_a_replica_with_a_fault_gets_no_request_even_if_all_others_fail() -> None:
    async def full(_: web.Request) -> web.Response:
        return web.json_response({}, status=503)

    engines = [FakeEngine("liar"), FakeEngine("r1", answer=full)]
    async with gateway_over(*engines, admin_port=0) as gateway:
        engines[0].load = "garbage"
        await gateway.scraper.scrape()
        assert (await ask(gateway, chat("a")))[0] == 503
        assert await metric(gateway, 'sluice_gateway_replica_faults_total{kind="wrong_load"} 1.0')
    assert engines[0].seen == []


@pytest.mark.parametrize(
    "answer",
    [
        b"\x16\x03\x01\x00garbage\r\n\r\n",
        b"HTTP/1.1 999999 x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 100_000 + b"\r\n\r\n",
    ],
    ids=range(5),
)
async def test_a_replica_whose_answers_are_not_http_is_out(answer: bytes) -> None:
    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    good = FakeEngine("r1")
    await good.start()
    async with await asyncio.start_server(garbage, "127.0.0.1", 0) as server:
        bad = Backend("r0", "127.0.0.1", server.sockets[0].getsockname()[1])
        async with Gateway(
            lambda: [bad, good.backend], GatewayOptions(port=0, admin_port=0, policy="RoundRobin")
        ) as gateway:
            assert [await chosen(gateway, chat("a")) for _ in range(4)] == ["r1"] * 4
            assert await metric(gateway, 'sluice_gateway_replica_faults_total{kind="no_http"} 1.0')
    await good.stop()


@pytest.mark.parametrize("status", [400, 429, 500])
async def test_a_prompt_that_was_answered_by_an_error_is_not_thought_to_be_cached(status: int) -> None:
    async def fails(_: web.Request) -> web.Response:
        return web.json_response({}, status=status)

    async with gateway_over(FakeEngine("r0", answer=fails)) as gateway:
        assert (await ask(gateway, chat(LONG)))[0] == status
        assert len(gateway.fleet.caches) == 0


async def test_a_late_answer_of_a_removed_replica_leaves_nothing_of_its_cache() -> None:
    backends = [Backend("r0", "127.0.0.1", 1)]
    fleet = Fleet(lambda: backends)
    prompt = Prompt(1000.0, (1, 2, 3), 64.0)
    (state,) = fleet.order(prompt, None)
    attempt = fleet.begin(state, prompt)
    assert len(fleet.caches) == 3
    backends.clear()
    fleet.states()
    fleet.end(fleet.begin(state, prompt))  # a request that had chosen it before
    fleet.answered(attempt, 0.0, 1000.0)
    fleet.end(attempt)
    assert len(fleet.caches) == 0
    backends.append(Backend("r0", "127.0.0.1", 2))  # another pod of the same name
    (replaced,) = fleet.order(prompt, None)
    fleet.begin(replaced, prompt)
    fleet.out(state, "it refuses connections")
    assert len(fleet.caches) == 3


async def test_a_replica_whose_stream_turns_into_garbage_is_out_and_the_stream_ends_with_an_error_event() -> None:
    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"9\r\ndata: 1\n\n\r\n")
        await seen.wait()
        writer.write(b"no chunk\r\n")
        writer.close()

    seen = asyncio.Event()
    async with await asyncio.start_server(garbage, "127.0.0.1", 0) as server:
        bad = Backend("r0", "127.0.0.1", server.sockets[0].getsockname()[1])
        async with (
            Gateway(lambda: [bad], GatewayOptions(port=0, admin_port=0)) as gateway,
            aiohttp.ClientSession() as client,
            client.post(gateway.url + CHAT, json=chat("a")) as response,
        ):
            assert await response.content.readany() == b"data: 1\n\n"
            seen.set()
            assert b'"server_error"' in await response.content.read()
            assert await metric(gateway, 'sluice_gateway_replica_faults_total{kind="no_http"} 1.0')

"""What goes over the gateway's sockets: bodies that do not come, paths and headers as sent, and ends of broken streams."""

import asyncio
import json

import aiohttp
import pytest
from aiohttp import web
from aiohttp.base_protocol import BaseProtocol

from sluice.httpapi.body import MAX_BODY_BYTES
from sluice_gateway.replicas.answers import read_at_most
from sluice_gateway.replicas.backend import Backend
from sluice_gateway.server import Gateway, GatewayOptions
from tests.gateway.engines import CHAT, FakeEngine, gateway_over
from tests.gateway.test_fleet import chat, dies, metric

MESSAGES = "/v1/messages"
IDLE = 40  # connections that announce a whole body each: more than all bodies may hold together


async def raw(url: str, request: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
    writer.write(request.encode())
    await writer.drain()
    return reader, writer


async def test_bodies_that_are_only_announced_take_no_room() -> None:
    async with gateway_over(FakeEngine("r0")) as gateway, aiohttp.ClientSession() as client:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {MAX_BODY_BYTES}\r\n\r\n"
        writers = [(await raw(gateway.url, head))[1] for _ in range(IDLE)]
        async with client.post(gateway.url + CHAT, json=chat("a")) as response:
            assert response.status == 200
        for writer in writers:
            writer.close()


async def test_an_announced_body_over_the_limit_is_a_413_at_once() -> None:
    async with gateway_over(FakeEngine("r0")) as gateway:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {MAX_BODY_BYTES + 1}\r\n\r\n"
        reader, writer = await raw(gateway.url, head)
        async with asyncio.timeout(60):
            assert b" 413 " in await reader.readline()
        writer.close()


async def test_a_chunked_body_over_the_limit_is_a_413() -> None:
    async with gateway_over(FakeEngine("r0")) as gateway:
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        reader, writer = await raw(gateway.url, head)
        writer.write(f"{MAX_BODY_BYTES + 1:x}\r\n".encode() + b"x" * (MAX_BODY_BYTES + 1))
        async with asyncio.timeout(60):
            assert b" 413 " in await reader.readline()
        writer.close()


async def test_an_engine_gets_the_path_as_it_was_sent() -> None:
    lines: list[bytes] = []

    async def record(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(await reader.readline())
        writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    paths = ("/v1/models/../../metrics", "/v1/models/%2e%2e/%2e%2e/metrics")
    async with await asyncio.start_server(record, "127.0.0.1", 0) as server:
        backend = Backend("r0", "127.0.0.1", server.sockets[0].getsockname()[1])
        async with Gateway(lambda: [backend], GatewayOptions(port=0)) as gateway:
            for path in paths:
                head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                reader, writer = await raw(gateway.url, head)
                async with asyncio.timeout(60):
                    await reader.read()
                writer.close()
    assert [line.split()[1].decode() for line in lines] == list(paths)


async def test_every_connection_header_names_hop_by_hop_headers() -> None:
    engine = FakeEngine("r0")
    async with gateway_over(engine) as gateway:
        body = json.dumps(chat("a"))
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        named = "Connection: close\r\nConnection: x-hop\r\nx-hop: 1\r\nx-end: 2\r\n\r\n"
        reader, writer = await raw(gateway.url, head + named + body)
        async with asyncio.timeout(60):
            assert b" 200 " in await reader.readline()
        writer.close()
    (seen,) = engine.seen
    assert "x-hop" not in seen.headers
    assert seen.headers["x-end"] == "2"


@pytest.mark.parametrize("cut", [b"event: a\ndata: 1\n\n", b"event: a\ndata: 1\n\nevent: b\ndata: {"])
async def test_a_broken_message_ends_with_an_error_that_anthropics_clients_read(cut: bytes) -> None:
    async with (
        gateway_over(FakeEngine("r0", answer=dies(cut))) as gateway,
        aiohttp.ClientSession() as client,
        client.post(gateway.url + MESSAGES, json=chat("a")) as response,
    ):
        events = [event for event in (await response.text()).split("\n\n") if event]
    name, data = events[-1].split("\n")
    assert name == "event: error"
    assert json.loads(data.removeprefix("data: "))["type"] == "error"


async def test_headers_come_with_the_first_event_and_the_end_with_the_last() -> None:
    async def two(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"data: 1\n\n")
        await seen.wait()
        await response.write_eof(b"data: 2\n\n")
        return response

    seen = asyncio.Event()
    async with gateway_over(FakeEngine("r0", answer=two)) as gateway:
        body = json.dumps(chat("a"))
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        reader, writer = await raw(gateway.url, f"{head}Content-Length: {len(body)}\r\n\r\n{body}")
        async with asyncio.timeout(60):
            first = await reader.read(65536)
            seen.set()
            last = await reader.read(65536)
        writer.close()
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert first.endswith(b"\r\n\r\n9\r\ndata: 1\n\n\r\n")
    assert last == b"9\r\ndata: 2\n\n\r\n0\r\n\r\n"


async def test_a_client_that_does_not_read_is_disconnected_and_its_replica_freed() -> None:
    freed = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            while True:
                await response.write(b"data: " + b"x" * 60_000 + b"\n\n")
        finally:
            freed.set()

    async with gateway_over(FakeEngine("r0", answer=endless), write_seconds=0.2, admin_port=0) as gateway:
        body = json.dumps(chat("a"))
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        _, writer = await raw(gateway.url, f"{head}Content-Length: {len(body)}\r\n\r\n{body}")
        async with asyncio.timeout(60):
            await freed.wait()
            await gateway.idle()
        assert await metric(gateway, 'sluice_gateway_requests_total{status="disconnected"} 1.0')
        writer.close()


async def test_a_content_that_comes_in_parts_is_read_to_its_end_or_bound() -> None:
    protocol = BaseProtocol(asyncio.get_running_loop())
    protocol.connection_made(asyncio.Transport())
    for most, expected in ((100, b"firstsecond"), (8, b"firstsec")):
        content = aiohttp.StreamReader(protocol, limit=1024)
        content.feed_data(b"first")
        reading = asyncio.create_task(read_at_most(content, most))
        await asyncio.sleep(0)
        assert not reading.done()
        content.feed_data(b"second")
        content.feed_eof()
        assert await reading == expected

"""A request's objects are freed at its end, and not by a garbage collection, which would hold the event loop."""

import asyncio
import gc

import aiohttp
import pytest
from aiohttp import web

from sluice.httpapi.connection import Connection, HttpServer
from sluice.httpapi.connection_limits import ConnectionLimits
from tests.engine.server.transport.test_connection_limits import until
from tests.gateway.test_gateway import CHAT, Handler, gateway_of, says

REQUESTS = 20
LAST_KEPT = 2  # the connection keeps its last request, and the loop a task that has just ended


async def stream(request: web.Request) -> web.StreamResponse:
    await request.read()
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(b'data: {"choices": []}\n\n')
    await response.write(b"data: [DONE]\n\n")
    return response


async def broken_stream(request: web.Request) -> web.StreamResponse:
    await request.read()
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(b'data: {"choices": []}\n\n')
    if request.transport is not None:
        request.transport.abort()
    return response


@pytest.mark.parametrize(
    ("handler", "path"),
    [(stream, CHAT), (broken_stream, CHAT), (says("whole"), CHAT), (says("nothing"), "/v1/nothing")],
    ids=["stream", "broken stream", "whole answer", "unknown path"],
)
async def test_a_request_leaves_nothing_for_a_garbage_collection(handler: Handler, path: str) -> None:
    async with gateway_of(handler) as (gateway, _), aiohttp.ClientSession(gateway.url) as client:
        await ask(client, path)
        gc.collect()
        gc.disable()
        try:
            for _ in range(REQUESTS):
                await ask(client, path)
            kept = sum(type(each) is web.BaseRequest for each in gc.get_objects())
        finally:
            gc.enable()
    assert kept <= LAST_KEPT


async def ask(client: aiohttp.ClientSession, path: str) -> None:
    async with client.post(path, json={"model": "m", "messages": [], "stream": True}) as answer:
        await answer.read()


async def test_a_client_that_leaves_while_its_unread_body_is_drained_leaves_nothing_either() -> None:
    server = HttpServer(too_large, ConnectionLimits(REQUESTS))
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        await leave(port, server)
        gc.collect()
        gc.disable()
        try:
            for _ in range(REQUESTS):
                await leave(port, server)
            kept = sum(type(each) is Connection for each in gc.get_objects())
        finally:
            gc.enable()
    assert kept <= LAST_KEPT


async def too_large(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response(status=413)


async def leave(port: int, server: HttpServer) -> None:
    """Send a part of a body, read the answer and leave; returns once the server has noticed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + bytes(1000))
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 413")
    writer.transport.abort()
    await until(lambda: not server.connections)

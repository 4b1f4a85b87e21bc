"""A request's objects are freed at its end, and not by a garbage collection, which would hold the event loop."""

import gc

import aiohttp
import pytest
from aiohttp import web

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

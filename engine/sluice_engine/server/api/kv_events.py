"""GET /kv_events: where tagged prompts are stored in the KV cache, and which of their blocks leave it, as server-sent events.

    event: begin     data: {"engine": "86d1c5e0a8f4b2d7"}
    event: stored    data: {"prompt": "4f1c-12", "tokens": 70, "block_tokens": 16, "blocks": [17, 3, 4, 21]}
    event: removed   data: {"blocks": [21, 4]}
    event: reset     data: {"lost": 812}

A gateway names a prompt by a header of its request. `blocks` are its leading full blocks that can be hit; a number stands for
the same content until its removal. Another `engine` than that of an earlier feed has another cache. The ids of events are
consecutive numbers; after a `reset`, which stands for events that a slow reader has lost, nothing of the events before it
holds. The feed has no text and no tokens of prompts.
"""

import asyncio
import re
from typing import Final

from aiohttp import web

from sluice import contract
from sluice.httpapi.connection_limits import WRITE_SECONDS
from sluice.httpapi.event_response import EventResponse
from sluice_engine.server.context import Serving
from sluice_engine.server.errors import ClientTooSlow

HEARTBEAT_SECONDS: Final = 5.0
_HEADERS: Final = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
_TAG: Final = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)


async def kv_events(request: web.BaseRequest, serving: Serving) -> web.StreamResponse:
    """GET /kv_events, until the client leaves or this server rejects requests. Raises Unavailable."""
    serving.check_loaded()
    if (rejection := serving.lifecycle.rejection()) is not None:
        raise rejection
    with serving.kv_feed.reader() as reader:
        ending = asyncio.create_task(serving.lifecycle.wait_rejecting())
        ending.add_done_callback(lambda _: reader.close())
        response = serving.stream_response(request, _HEADERS)
        try:
            events: bytes | None = serving.kv_feed.opening
            while events is not None:
                await _write(response, events)
                events = await reader.next(HEARTBEAT_SECONDS)
        finally:
            ending.cancel()
        await response.write_eof()
    return response


async def _write(response: EventResponse, events: bytes) -> None:
    """Raises ClientTooSlow and ConnectionError."""
    try:
        async with asyncio.timeout(WRITE_SECONDS):
            await response.write(events)
    except TimeoutError as error:
        raise ClientTooSlow from error


def prompt_tag(request: web.BaseRequest, serving: Serving) -> str:
    """The name that the gateway gives to the request's prompt; "" without a reader of the events."""
    tag = request.headers.get(contract.HEADER_PROMPT_TAG, "") if serving.kv_feed.is_read else ""
    return tag if _TAG.fullmatch(tag) else ""

"""Passing one response on to the client, byte by byte."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import aiohttp
from aiohttp import web

from sluice.httpapi.connection import Connection
from sluice_gateway.errors import UpstreamLost, sse_error
from sluice_gateway.headers import forwarded_headers

UPSTREAM_ERRORS: Final = (aiohttp.ClientError, TimeoutError, OSError)
EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n")


@dataclass(frozen=True, slots=True)
class Begun:
    """A response whose headers and first bytes have arrived: from here on it cannot come from another replica."""

    upstream: aiohttp.ClientResponse
    first: bytes

    def number(self, header: str) -> float:
        """A header that is a count; 0 if it is missing or no count."""
        text = self.upstream.headers.get(header, "")
        return float(text) if text.isascii() and text.isdigit() and len(text) <= 12 else 0.0


async def begun(upstream: aiohttp.ClientResponse) -> Begun:
    """Wait for the first bytes. Raises what aiohttp raises if the replica is lost before."""
    return Begun(upstream, await upstream.content.readany())


async def pass_on(
    request: web.BaseRequest, answer: Begun, on_tokens: Callable[[int], None]
) -> tuple[web.StreamResponse, bool]:
    """Stream the response to its end. Returns it, and whether the replica completed it.

    `on_tokens` is told of output tokens: one per event, which is what an engine sends per step without speculation.

    If the replica is lost, an event stream ends with an error event; any other response is aborted, because a clean end
    would make a partial response look complete.
    """
    upstream = answer.upstream
    response = web.StreamResponse(
        status=upstream.status, reason=upstream.reason, headers=forwarded_headers(upstream.headers)
    )
    if upstream.content_length is not None:
        response.content_length = upstream.content_length
    if isinstance(request.protocol, Connection) and request.protocol.aged:
        response.force_close()
    await response.prepare(request)
    chunk, events = answer.first, upstream.content_type == "text/event-stream"
    while chunk:
        await response.write(chunk)
        if events:
            on_tokens(chunk.count(EVENT_ENDS[0]))
        try:
            chunk = await upstream.content.readany()
        except UPSTREAM_ERRORS:
            await _break_off(request, response, upstream.content_type, whole=chunk.endswith(EVENT_ENDS))
            return response, False
    await response.write_eof()
    return response, True


async def _break_off(request: web.BaseRequest, response: web.StreamResponse, content_type: str, *, whole: bool) -> None:
    """`whole`: the last event was not cut off."""
    if content_type == "text/event-stream":
        await response.write(b"" if whole else EVENT_ENDS[0])
        await response.write(sse_error(request.rel_url.raw_path, UpstreamLost()))
        await response.write_eof()
    elif request.transport is not None:
        request.transport.abort()


async def read_at_most(content: aiohttp.StreamReader, most: int) -> bytes:
    """The content to its end, or its first `most` bytes. One `read` returns only what has arrived."""
    parts = b""
    while len(parts) < most and (part := await content.read(most - len(parts))):
        parts += part
    return parts

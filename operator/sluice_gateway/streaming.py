"""Passing one response on to the client, byte by byte."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from aiohttp import web

from sluice.auth.caller import rate_headers
from sluice.httpapi.connection import Connection
from sluice.httpapi.connection_limits import WRITE_SECONDS
from sluice.httpapi.errors import ApiError, ClientTooSlow
from sluice.httpapi.streamed_response import StreamedResponse, takes
from sluice_gateway.errors import ERROR_BYTES, EVENT_ENDS, ends_broken, sse_error
from sluice_gateway.headers import forwarded_headers
from sluice_gateway.upstream.answer import Answer
from sluice_gateway.upstream.errors import UpstreamError


@dataclass(frozen=True, slots=True)
class Begun:
    """A response whose headers and first bytes have arrived: from here on it cannot come from another replica."""

    upstream: Answer
    first: bytes

    def number(self, header: str) -> float:
        """A header that is a count; 0 if it is missing or no count."""
        text = self.upstream.headers.get(header, "")
        return float(text) if text.isascii() and text.isdigit() and len(text) <= 12 else 0.0


async def start(request: web.BaseRequest, answer: Begun) -> StreamedResponse:
    """The response to the client, whose headers go out with the first bytes."""
    upstream = answer.upstream
    headers = forwarded_headers(upstream.headers)
    headers.update(rate_headers(request))  # an engine that counts too knows only its own part
    response = StreamedResponse(status=upstream.status, reason=upstream.reason, headers=headers)
    if (length := upstream.content_length) is not None:
        response.content_length = length
    if isinstance(request.protocol, Connection) and request.protocol.aged:
        response.force_close()
    await response.prepare(request)
    response.headers.clear()  # they are written with the first bytes, and a stream may last for minutes
    upstream.forget_head()
    if isinstance(request.protocol, Connection):
        request.protocol.stop_idle_timer()
    return response


class Stream(Protocol):
    """What is passed on of a response. `last` are the last bytes passed on, `complete` that nothing is missing."""

    last: bytes
    complete: bool
    resumable: bool

    @property
    def broken(self) -> bool:
        """Whether what has come ends with an error event by which its replica breaks it off."""

    def take(self, chunk: bytes) -> bytes:
        """More bytes have come; returns those that are passed on now."""

    def end(self) -> bytes:
        """No more come; returns those that are still to be passed on."""


class PlainStream:
    """A response that is passed on as it comes."""

    complete = resumable = False

    def __init__(self) -> None:
        self.last = b""

    @property
    def broken(self) -> bool:
        """Whether it ends with an error event, which has been passed on."""
        return ends_broken(self.last)

    def take(self, chunk: bytes) -> bytes:
        """All of it."""
        self.last = chunk if self.last.endswith(EVENT_ENDS) else self.last[-ERROR_BYTES:] + chunk
        return chunk

    def end(self) -> bytes:
        """Nothing is left."""
        return b""


@dataclass(frozen=True, slots=True)
class Passing:
    """A response to the client, and what is passed on to it."""

    request: web.BaseRequest
    response: StreamedResponse
    stream: Stream
    is_events: bool = False
    write_seconds: float = WRITE_SECONDS


PASSING: Final = web.RequestKey("passing", Passing)  # of a request whose response has begun


async def relay(answer: Begun, passing: Passing, on_tokens: Callable[[int], None]) -> bool:
    """Pass a response on. True at its end, False if the replica did not complete it or ended it with an error event.

    `on_tokens` is told of output tokens: one per event, which is what an engine sends per step without speculation.
    """
    upstream, stream = answer.upstream, passing.stream
    chunk, events = answer.first, upstream.is_events
    while chunk:
        part = stream.take(chunk)
        last = upstream.at_end and not (events and stream.broken)
        if last:
            part += stream.end()
        if part:
            await _write(passing, part, last=last)
            if events:
                on_tokens(part.count(EVENT_ENDS[0]))
        try:
            while (more := upstream.more()) is not None:  # no coroutine of its own, which each open stream would keep
                await more
        except UpstreamError:
            return False
        chunk = upstream.take()
    return not (events and stream.broken)


async def _write(passing: Passing, part: bytes, *, last: bool) -> None:
    """Write a part, the last one with the end of the body.

    Raises ClientTooSlow; without it, one client that does not read would hold its replica's stream for ever.
    """
    write = passing.response.write_eof if last else passing.response.write
    if passing.request.method == "HEAD":  # a replica was asked for the whole answer
        part = b""
    if takes(passing.request, len(part)):
        await write(part)
        return
    try:
        async with asyncio.timeout(passing.write_seconds):
            await write(part)
    except TimeoutError as error:
        raise ClientTooSlow from error


async def break_off(passing: Passing, error: ApiError) -> None:
    """End a response that is not completed.

    An event stream ends with an event of the error, or with that of its replica; any other response is aborted, because a
    clean end would make a partial response look complete.
    """
    request, response, stream = passing.request, passing.response, passing.stream
    if passing.is_events and stream.broken:
        await response.write_eof(stream.end())
    elif passing.is_events:
        await response.write(b"" if stream.last.endswith(EVENT_ENDS) else EVENT_ENDS[0])
        await response.write(sse_error(request.rel_url.raw_path, error))
        await response.write_eof()
    elif request.transport is not None:
        request.transport.abort()

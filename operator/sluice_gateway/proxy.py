"""Proxying of one request: the request is buffered, the response is streamed.

The request is read before a replica is chosen, because an engine needs all of it before it can start. It can then be
offered to the next replica as long as no byte of a response has been sent. Responses are never buffered.
"""

import asyncio
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from sluice import contract
from sluice_gateway.backends import Backend, RoundRobin
from sluice_gateway.errors import error_response, sse_error
from sluice_gateway.headers import forwarded_headers
from sluice_gateway.holding import HoldQueue

REJECTION_BYTES: Final = 64 * 1024  # bytes of a replica's 503 that are kept while another replica is tried
_UPSTREAM_LOST: Final = "the replica went away before the answer was complete"


@dataclass(frozen=True, slots=True)
class Rejection:
    """A replica's 503, kept in case that no other replica answers better."""

    headers: CIMultiDict[str]
    body: bytes


class Proxy:
    """Sends requests to the replicas, round robin."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        backends: Callable[[], Sequence[Backend]],
        body_seconds: float,
        hold_queue: HoldQueue,
    ) -> None:
        self._session = session
        self._backends = backends
        self._hold_queue = hold_queue
        self._turns = RoundRobin()
        self._body_seconds = body_seconds

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request: try each ready replica once; without a better answer the last 503 is returned.

        The status is 408 where the body is not read in time, and 503 where no replica is ready or answers.
        """
        try:
            async with asyncio.timeout(self._body_seconds):
                body = await request.read()
        except TimeoutError:
            return error_response(
                408, f"the body did not arrive within {self._body_seconds:g} s", "invalid_request_error",
                headers={"Connection": "close"},
            )  # fmt: skip
        headers = forwarded_headers(request.headers)
        headers.popall(contract.HEADER_ATTEMPT, None)  # set only by the gateway: with it, an engine counts no arrival
        attempt = 1
        rejection: Rejection | None = None
        lost = False
        # Only inference requests wake a model that is scaled to zero: a poll of /v1/models does not.
        ready = await self._hold_queue.wait(self._backends) if request.method == "POST" else tuple(self._backends())
        for backend in self._turns.order(ready):
            if attempt > 1:
                headers[contract.HEADER_ATTEMPT] = str(attempt)
            try:
                upstream = await self._send(request, backend, headers, body)
            except aiohttp.ClientConnectorError:
                lost = True  # no replica received the request: the next attempt counts as the first
                continue
            except (aiohttp.ClientError, TimeoutError, OSError):
                lost = True  # the replica failed before any byte of a response: nothing was sent to the client
                attempt += 1
                continue
            try:
                if upstream.status == 503:
                    rejection = await _rejection(upstream)
                    attempt += 1
                    continue
                return await _stream(request, upstream)
            finally:
                upstream.close()  # closes the connection unless the response was read to its end
        if rejection is not None:
            return web.Response(status=503, headers=rejection.headers, body=rejection.body)
        what = "no replica answered" if lost else "no replica is ready"
        return error_response(
            503, f"{what}: try again soon", "service_unavailable", code="no_replica",
            headers={contract.HEADER_RETRY_AFTER: str(self._hold_queue.retry_after())},
        )  # fmt: skip

    async def _send(
        self, request: web.Request, backend: Backend, headers: CIMultiDict[str], body: bytes
    ) -> aiohttp.ClientResponse:
        """Send the request to one replica and return once the response headers are read."""
        return await self._session.request(
            request.method,
            backend.url + request.rel_url.raw_path_qs,
            headers=headers,
            data=io.BytesIO(body) if request.body_exists else None,
            allow_redirects=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )


async def _rejection(upstream: aiohttp.ClientResponse) -> Rejection:
    try:
        body = await upstream.content.read(REJECTION_BYTES)
    except (aiohttp.ClientError, TimeoutError, OSError):
        body = b""
    return Rejection(forwarded_headers(upstream.headers), body)


async def _stream(request: web.Request, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
    """Stream the response.

    A replica that dies during it ends an event stream with an error event; any other response is aborted.
    """
    response = web.StreamResponse(
        status=upstream.status, reason=upstream.reason, headers=forwarded_headers(upstream.headers)
    )
    if upstream.content_length is not None:
        response.content_length = upstream.content_length
    await response.prepare(request)
    while True:
        try:
            chunk = await upstream.content.readany()
        except (aiohttp.ClientError, TimeoutError, OSError):
            if upstream.content_type == "text/event-stream":
                await response.write(sse_error(_UPSTREAM_LOST))
            elif request.transport is not None:
                request.transport.abort()  # a clean end would make a partial response poll complete
            return response
        if not chunk:
            await response.write_eof()
            return response
        await response.write(chunk)

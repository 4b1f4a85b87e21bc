"""Reads request bodies: JSON only, bounded in bytes and time, before any other work on the request."""

import asyncio
from typing import Any, Final

import orjson
from aiohttp import HttpVersion11, web

from sluice.httpapi.connection import Connection
from sluice.httpapi.connection_limits import RECEIVE_SECONDS
from sluice.httpapi.errors import BadRequest, RequestTimeout, TooLarge, UnsupportedMedia
from sluice.httpapi.nesting import MAX_DEPTH, check_depth

MAX_BODY_BYTES: Final = 8 * 1024 * 1024


async def read_object(request: web.BaseRequest) -> dict[str, Any]:
    """Returns the body as a JSON object. Raises what `read_body` and `parse_object` do."""
    return parse_object(await read_body(request))


async def read_body(request: web.BaseRequest) -> bytes:
    """Returns the body of a JSON request.

    Raises UnsupportedMedia (415), TooLarge (413), RequestTimeout (408) and BadRequest (400). Raises Unavailable (503)
    if the bodies of all current requests exceed the budget, possibly before this body has arrived completely.
    """
    _check_headers(request)
    return await _read(request)


def _check_headers(request: web.BaseRequest) -> None:
    if request.headers.get("Content-Encoding") is not None:
        raise UnsupportedMedia("Content-Encoding is not supported; send the JSON body as it is.")
    if request.headers.get("Transfer-Encoding", "chunked").lower() != "chunked":  # gzip before it, for example
        raise BadRequest(
            "Of the codings of Transfer-Encoding only chunked is supported; send the JSON body as it is.",
            code="unsupported_transfer_encoding",
        )
    if request.headers.get("Content-Type") != "application/json":  # what most clients send
        _check_type(request)
    length = request.content_length
    if length is not None and length > MAX_BODY_BYTES:
        raise _too_large()


def _check_type(request: web.BaseRequest) -> None:
    if request.content_type != "application/json" or "Content-Type" not in request.headers:
        raise UnsupportedMedia("The body must be JSON; send it with Content-Type: application/json.")
    if (request.charset or "utf-8").lower().replace("_", "-") not in {"utf-8", "utf8"}:
        raise UnsupportedMedia("The body must be UTF-8.")


def release(request: web.BaseRequest) -> None:
    """Returns the body's bytes to the budget. Idempotent. The handler calls it when it no longer holds data of the
    body.

    The router calls it at the end of each handler.
    """
    if isinstance(request.protocol, Connection):
        request.protocol.release_body()


async def _read(request: web.BaseRequest) -> bytes:
    if request.headers.get("Expect", "").lower() == "100-continue" and request.version >= HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the final response has not begun
    connection = request.protocol if isinstance(request.protocol, Connection) else None
    if connection is not None and request.content.is_eof():  # as most: it came with the headers
        return _read_arrived(request, connection)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout_at(connection.deadline if connection is not None else None) as limit:
            if connection is not None:
                connection.begin_body(lambda: _end_now(limit))
            while part := await request.content.readany():
                size += len(part)
                if size > MAX_BODY_BYTES:
                    raise _too_large()
                if connection is not None:
                    connection.take_bytes(len(part))
                parts.append(part)
    except TimeoutError as error:
        if connection is not None:
            connection.check_body()
        seconds = RECEIVE_SECONDS if connection is None else connection.receive_seconds
        raise RequestTimeout(f"The request's body did not arrive within {seconds:g} s.") from error
    except web.RequestPayloadError as error:
        raise _misframed() from error
    if connection is not None:
        connection.body_arrived()
    return b"".join(parts)


def _read_arrived(request: web.BaseRequest, connection: Connection) -> bytes:
    try:
        body = request.content.read_nowait()
    except web.RequestPayloadError as error:
        raise _misframed() from error
    if len(body) > MAX_BODY_BYTES:
        raise _too_large()
    connection.take_body(len(body))
    return body


def _end_now(limit: asyncio.Timeout) -> None:
    if not limit.expired():  # its own timeout may have expired just before
        limit.reschedule(0.0)


def parse_object(body: bytes) -> dict[str, Any]:
    """Parses strict JSON: no NaN or Infinity, no invalid UTF-8, no lone surrogates, bounded nesting, an object at the
    top.

    Raises BadRequest.
    """
    if not body:
        raise BadRequest("The body is empty; send a JSON object.", code="invalid_json")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"The body is not valid JSON: {error}.", code="invalid_json") from error
    if not isinstance(value, dict):
        raise BadRequest("The body must be a JSON object.", code="invalid_json")
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH:  # else it cannot be nested deeper
        check_depth(value)
    return value


def _misframed() -> BadRequest:
    return BadRequest("The request's body is not framed as its headers say.")


def _too_large() -> TooLarge:
    return TooLarge(f"The body is larger than {MAX_BODY_BYTES} bytes.", code="body_too_large")

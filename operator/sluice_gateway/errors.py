"""The gateway's own errors as responses, and as the last event of a stream that has begun."""

import json
from typing import Any, Final

import orjson
from aiohttp import web

from sluice.httpapi.errors import ApiError, Unavailable

EVENT_ENDS: Final = (b"\n\n", b"\r\n\r\n")
ERROR_BYTES: Final = 2048  # an error event is smaller
LOST_CODES: Final = frozenset(
    {"draining", "internal_error"}
)  # of a server that stops, or whose engine process has died
LOST_TYPES: Final = frozenset({"api_error", "overloaded_error"})  # Anthropic's errors have no code
NO_ROOM_SECONDS: Final = 1.0  # until a client whom a bound of the gateway itself rejects should come again


class UpstreamLost(ApiError):
    """A replica has sent a part of its answer and no more."""

    def __init__(self) -> None:
        super().__init__("The replica went away before the answer was complete; send it again.", code="upstream_lost")


def error_response(request: web.BaseRequest, error: ApiError) -> web.Response:
    """An error before any byte of an answer was sent, in the format of the path's API."""
    response = web.Response(
        status=error.status,
        body=error.body_for(request.rel_url.raw_path),
        content_type="application/json",
        headers=error.headers(),
    )
    if not request.content.is_eof():  # the rest of the body is not wanted
        response.force_close()
    return response


def draining() -> Unavailable:
    """The gateway takes no new requests."""
    return Unavailable(
        "This gateway is shutting down; send the request again.", code="draining", retry_after=NO_ROOM_SECONDS
    )


def in_flight_full(most: int) -> Unavailable:
    """The gateway has as many requests as it may have."""
    return Unavailable(
        f"{most} requests are in flight, the most that this gateway takes; send it again soon.",
        code="in_flight_full",
        retry_after=NO_ROOM_SECONDS,
    )


def cannot_start(reason: str, retry_after: float) -> Unavailable:
    """The model can get no replica. Clients get the reason but not the message, which may name images and Secrets."""
    return Unavailable(
        f"The model cannot start: {reason}. Ask the owner of its LLMDeployment, whose Ready condition has the cause.",
        code="cannot_start",
        retry_after=retry_after,
    )


def sse_error(path: str, error: ApiError) -> bytes:
    """An error event inside a stream that has begun, in the format of the path's API."""
    body = error.body_for(path)
    name = b"event: error\n" if "type" in json.loads(body) else b""
    return name + b"data: " + body + b"\n\n"


def ends_broken(events: bytes) -> bool:
    """Whether events end with an error event by which an engine breaks a stream off, in the format of any API.

    Another engine may complete such a stream. An error of the request itself would come from there as well.
    """
    if not events.endswith(EVENT_ENDS):
        return False
    event = events.rstrip(b"\r\n")[-ERROR_BYTES:].rpartition(b"\n\n")[2]
    data = event[event.find(b"data:") + len(b"data:") :]
    if b'"error"' not in data:  # as the last event of nearly every stream
        return False
    try:
        document: Any = orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    if not isinstance(document, dict):
        return False
    error = document if isinstance(document.get("code"), str) else document.get("error")
    return isinstance(error, dict) and (error.get("code") in LOST_CODES or error.get("type") in LOST_TYPES)

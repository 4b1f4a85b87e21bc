"""The gateway's own errors as responses, and as the last event of a stream that has begun."""

import json
from typing import Final

from aiohttp import web

from sluice.httpapi.errors import ApiError, Unavailable

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

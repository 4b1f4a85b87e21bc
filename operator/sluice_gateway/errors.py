"""The gateway's own error responses, in OpenAI's format."""

import json
from collections.abc import Mapping

from aiohttp import web


def error_body(message: str, kind: str, *, code: str | None = None, param: str | None = None) -> bytes:
    """`{"error": {"message", "type", "param", "code"}}` as bytes."""
    return json.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}}).encode()


def error_response(
    status: int,
    message: str,
    kind: str,
    *,
    code: str | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """An error response before any byte of the upstream response was sent."""
    return web.Response(
        status=status,
        body=error_body(message, kind, code=code, param=param),
        content_type="application/json",
        headers=headers,
    )


def sse_error(message: str, *, anthropic: bool = False) -> bytes:
    """An error event inside a stream that has started, in OpenAI's or Anthropic's format."""
    if anthropic:
        body = json.dumps({"type": "error", "error": {"type": "api_error", "message": message}}).encode()
        return b"event: error\ndata: " + body + b"\n\n"
    return b"data: " + error_body(message, "server_error", code="upstream_lost") + b"\n\n"

"""Errors of the HTTP API, of the engine and of the gateway. Each class maps to one HTTP status and has both bodies, OpenAI's
and Anthropic's.

ApiError
├── BadRequest            400 invalid_request_error (param, code)
├── Unauthorized          401 invalid_api_key
├── Forbidden             403 model_not_allowed
├── NotFound              404 (an unknown path; model_not_found)
├── MethodNotAllowed      405
├── RequestTimeout        408
├── TooLarge              413
├── UnsupportedMedia      415
├── RateLimited           429 rate_limit_exceeded with Retry-After
├── Unavailable           503 with Retry-After
└── InternalError         500 with the request id only
"""

import math
from collections.abc import Mapping
from typing import Any, Final

import orjson

from sluice import contract

ANTHROPIC_TYPES: Final = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error",
}  # fmt: skip
COMMON_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Server": "sluice"}  # of every answer


class ApiError(Exception):
    """Base class of the HTTP errors. `message` is for the client: it states the fault, the reason and the remedy.
    `code` is a string or None, never a number. `details` is what Anthropic's clients read as `error.details`.
    """

    status = 500
    kind = "server_error"
    details: Mapping[str, Any] | None = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code

    def body(self) -> bytes:
        """Returns OpenAI's error object as JSON."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return orjson.dumps({"error": error})

    def anthropic_body(self) -> bytes:
        """Returns Anthropic's error object as JSON."""
        error: dict[str, Any] = {"type": ANTHROPIC_TYPES.get(self.status, "api_error"), "message": self.message}
        if self.details is not None:
            error["details"] = dict(self.details)
        return orjson.dumps({"type": "error", "error": error})

    def body_for(self, path: str) -> bytes:
        """Returns the body in the format of the path's API."""
        return self.anthropic_body() if path in contract.PATHS_ANTHROPIC else self.body()

    def headers(self) -> dict[str, str]:
        """Returns the response headers specific to this error."""
        return {}


class BadRequest(ApiError):
    """The request is invalid, and a retry without changes fails as well."""

    status = 400
    kind = "invalid_request_error"


class Unauthorized(ApiError):
    """The token is missing or wrong."""

    status = 401
    kind = "authentication_error"

    def headers(self) -> dict[str, str]:
        """Returns WWW-Authenticate, and x-should-retry: Claude Code otherwise repeats a wrong key for three minutes."""
        return {"WWW-Authenticate": "Bearer", "x-should-retry": "false"}


class Forbidden(ApiError):
    """The key is valid and does not permit this request."""

    status = 403
    kind = "permission_error"


class NotFound(ApiError):
    """The path or the model is unknown."""

    status = 404
    kind = "invalid_request_error"


def unknown_path() -> NotFound:
    """Returns the error for a path that no API of models has."""
    return NotFound(
        "This path does not exist; the paths are those of /openapi.json. The base URL of an OpenAI client ends in /v1, once, "
        "and that of an Anthropic client does not.",
        code="not_found",
    )


class MethodNotAllowed(ApiError):
    """The path exists but does not support this method."""

    status = 405
    kind = "invalid_request_error"

    def __init__(self, message: str, allowed: str) -> None:
        super().__init__(message, code="method_not_allowed")
        self._allowed = allowed

    def headers(self) -> dict[str, str]:
        """Returns the Allow header with the supported methods."""
        return {"Allow": self._allowed}


class RequestTimeout(ApiError):
    """The client did not send the complete request before the deadline."""

    status = 408
    kind = "invalid_request_error"


class TooLarge(ApiError):
    """The body exceeds the size limit."""

    status = 413
    kind = "invalid_request_error"


class UnsupportedMedia(ApiError):
    """The body is not plain JSON in UTF-8."""

    status = 415
    kind = "invalid_request_error"


class RateLimited(ApiError):
    """The tenant has used its rate. `unit` is "requests" or "tokens", and is the error's type as at OpenAI.

    `retry_after` is in seconds. It is exact, so a client that waits that long is served.
    """

    status = 429

    def __init__(self, message: str, unit: str, *, retry_after: float) -> None:
        super().__init__(message, code="rate_limit_exceeded")
        self.kind = unit
        self._retry_after = retry_after

    def headers(self) -> dict[str, str]:
        """Returns Retry-After and retry-after-ms."""
        return _retry_headers(self._retry_after)


class Unavailable(ApiError):
    """The server is full, draining or loading. The same request may succeed later or on another replica.

    `retry_after` is in seconds and is limited to [0.001, 120]; a value that is not finite becomes 120.
    """

    status = 503
    kind = "service_unavailable"

    def __init__(self, message: str, *, code: str, retry_after: float) -> None:
        super().__init__(message, code=code)
        self._retry_after = min(max(retry_after, 0.001), 120.0) if math.isfinite(retry_after) else 120.0

    def headers(self) -> dict[str, str]:
        """Returns Retry-After and retry-after-ms."""
        return _retry_headers(self._retry_after)


class InternalError(ApiError):
    """The server failed. The response contains the request id and no detail."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"The request failed inside the server. Quote request id {request_id}.", code="internal_error")


class ClientTooSlow(Exception):
    """The client reads its answer too slowly: its buffer is full or a write timed out, and the request is aborted."""


def _retry_headers(seconds: float) -> dict[str, str]:
    """Retry-After in whole seconds, and retry-after-ms, which the OpenAI clients read first."""
    return {
        contract.HEADER_RETRY_AFTER: str(max(1, math.ceil(seconds))),
        "retry-after-ms": str(max(1, math.ceil(seconds * 1000))),
    }

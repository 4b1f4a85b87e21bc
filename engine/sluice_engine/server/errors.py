"""Everything a request can be refused with, as one tree: each error knows its HTTP status and OpenAI body.

ApiError
├── BadRequest            400 invalid_request_error (param, code)
│   ├── ContextTooLong    400 context_length_exceeded
│   └── Unsupported       400 unsupported_parameter
├── Unauthorized          401 invalid_api_key
├── NotFound              404 (an unknown path; model_not_found)
├── MethodNotAllowed      405
├── Timeout               408
├── TooLarge              413
├── UnsupportedMedia      415
├── Unavailable           503 with Retry-After
└── InternalError         500 with the request id only
"""

import math

import orjson

from sluice import contract


class ApiError(Exception):
    """`message` is for the client: what, why, what to do. `code` is a string or None, never a number."""

    status = 500
    kind = "server_error"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code

    def body(self) -> bytes:
        """OpenAI's error object as JSON."""
        return orjson.dumps(
            {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}
        )

    def headers(self) -> dict[str, str]:
        """Headers that belong to this error."""
        return {}


class BadRequest(ApiError):
    """The request can never be served as it is."""

    status = 400
    kind = "invalid_request_error"


class ContextTooLong(BadRequest):
    """Prompt, or prompt and answer, beyond what the model can hold."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message, param=param, code="context_length_exceeded")


class Unsupported(BadRequest):
    """A field of the OpenAI API that this engine does not have (yet)."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message, param=param, code="unsupported_parameter")


class Unauthorized(ApiError):
    """No or a wrong token."""

    status = 401
    kind = "authentication_error"

    def headers(self) -> dict[str, str]:
        """How to authenticate."""
        return {"WWW-Authenticate": "Bearer"}


class NotFound(ApiError):
    """Unknown path or model."""

    status = 404
    kind = "invalid_request_error"


class MethodNotAllowed(ApiError):
    """The path exists, not with this method."""

    status = 405
    kind = "invalid_request_error"

    def __init__(self, message: str, allowed: str) -> None:
        super().__init__(message, code="method_not_allowed")
        self._allowed = allowed

    def headers(self) -> dict[str, str]:
        """What would be allowed."""
        return {"Allow": self._allowed}


class RequestTimeout(ApiError):
    """The client did not finish sending in time."""

    status = 408
    kind = "invalid_request_error"


class TooLarge(ApiError):
    """The body is over the limit."""

    status = 413
    kind = "invalid_request_error"


class UnsupportedMedia(ApiError):
    """Not plain JSON."""

    status = 415
    kind = "invalid_request_error"


class Unavailable(ApiError):
    """Full, draining or loading: the same request may succeed elsewhere or later."""

    status = 503
    kind = "service_unavailable"

    def __init__(self, message: str, *, code: str, retry_after: float) -> None:
        super().__init__(message, code=code)
        self._retry_after = min(max(retry_after, 0.001), 120.0) if math.isfinite(retry_after) else 120.0

    def headers(self) -> dict[str, str]:
        """Retry-After in whole seconds, and the finer one that the OpenAI clients read first."""
        return {
            contract.HEADER_RETRY_AFTER: str(max(1, math.ceil(self._retry_after))),
            "retry-after-ms": str(max(1, math.ceil(self._retry_after * 1000))),
        }


class InternalError(ApiError):
    """Our fault: the client learns the request id and nothing else."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"The request failed inside the engine. Quote request id {request_id}.", code="internal_error")


class ClientTooSlow(Exception):
    """The client reads its stream so slowly that the buffer for it is full: the request is given up."""

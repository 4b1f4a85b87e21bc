"""The errors of the engine's HTTP API: those that it shares with the gateway, and its own.

ApiError
├── …                     see sluice.httpapi.errors
└── BadRequest
    ├── ContextTooLong    400 context_length_exceeded
    └── Unsupported       400 unsupported_parameter
"""

from sluice.httpapi.errors import (
    ApiError,
    BadRequest,
    ClientTooSlow,
    Forbidden,
    InternalError,
    MethodNotAllowed,
    NotFound,
    RateLimited,
    RequestTimeout,
    TooLarge,
    Unauthorized,
    Unavailable,
    UnsupportedMedia,
)

__all__ = (
    "ApiError",
    "BadRequest",
    "ClientTooSlow",
    "ContextTooLong",
    "Forbidden",
    "InternalError",
    "MethodNotAllowed",
    "NotFound",
    "RateLimited",
    "RequestTimeout",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "Unsupported",
    "UnsupportedMedia",
)


class ContextTooLong(BadRequest):
    """The prompt, or the prompt plus the requested output tokens, exceeds the model's context length."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message, param=param, code="context_length_exceeded")


class Unsupported(BadRequest):
    """The request uses a field of the OpenAI API that this engine does not support."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message, param=param, code="unsupported_parameter")

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
    """The prompt, or the prompt plus the requested output tokens, exceeds the model's context length.

    `anthropic`: the sentence that Anthropic's clients look for, to shorten the conversation or ask for fewer tokens.
    """

    def __init__(self, message: str, param: str, anthropic: str | None = None) -> None:
        super().__init__(message, param=param, code="context_length_exceeded")
        self._anthropic = anthropic

    def anthropic_body(self) -> bytes:
        """Returns Anthropic's error object as JSON, in its own words."""
        return BadRequest(self._anthropic or self.message).anthropic_body()


class Unsupported(BadRequest):
    """The request uses a field of the OpenAI API that this engine does not support."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message, param=param, code="unsupported_parameter")

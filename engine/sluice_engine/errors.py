"""Startup errors as one tree; each leaf maps to one reason of `sluice.contract`.

StartError
├── ModelNotFound        the model folder does not exist
├── ModelInvalid         the folder's content cannot be served
│   └── UnsupportedArchitecture  the engine does not compute this model
├── AcceleratorNotFound  the requested device is not visible
├── InsufficientMemory   the KV pool would not hold one request
└── InvalidOption        an option contradicts the model or another option
"""

from typing import ClassVar

from sluice.contract import (
    REASON_ACCELERATOR_NOT_FOUND,
    REASON_ENGINE_CRASHED,
    REASON_INSUFFICIENT_MEMORY,
    REASON_INVALID_OPTION,
    REASON_MODEL_INVALID,
    REASON_MODEL_NOT_FOUND,
    REASON_UNSUPPORTED_ARCHITECTURE,
)


class StartError(Exception):
    """The engine cannot start as configured. The message states the cause and the remedy."""

    reason: ClassVar[str] = REASON_ENGINE_CRASHED


class ModelNotFound(StartError):
    """The model folder does not exist or holds no model."""

    reason = REASON_MODEL_NOT_FOUND


class ModelInvalid(StartError):
    """The model folder's content cannot be served."""

    reason = REASON_MODEL_INVALID


class UnsupportedArchitecture(ModelInvalid):
    """The engine does not compute models of this architecture."""

    reason = REASON_UNSUPPORTED_ARCHITECTURE


class AcceleratorNotFound(StartError):
    """The requested device is not visible."""

    reason = REASON_ACCELERATOR_NOT_FOUND


class InsufficientMemory(StartError):
    """The KV pool would not hold one request of the maximum length."""

    reason = REASON_INSUFFICIENT_MEMORY


class InvalidOption(StartError):
    """An option contradicts the model or another option."""

    reason = REASON_INVALID_OPTION


def first_line(error: Exception) -> str:
    """The first line of a library error's message, or the error's type name if the message is empty."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)

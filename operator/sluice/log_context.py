"""Fields that every log record of a task has, for example which resource a pass is about."""

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Final

_FIELDS: Final[ContextVar[Mapping[str, Any]]] = ContextVar("fields of log records", default=MappingProxyType({}))


def context_fields() -> Mapping[str, Any]:
    """The fields of the current task."""
    return _FIELDS.get()


@contextlib.contextmanager
def log_fields(**fields: Any) -> Iterator[None]:
    """Add fields to the records of this task, and of tasks that it starts, while the context lasts."""
    token = _FIELDS.set({**_FIELDS.get(), **fields})
    try:
        yield
    finally:
        _FIELDS.reset(token)

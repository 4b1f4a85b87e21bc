"""FaultHandler faults of bookkeeping: an exception is counted and logged, and does not reach the caller."""

import functools
import logging
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

log = logging.getLogger("sluice.faults")
P = ParamSpec("P")


class FaultHandler(Protocol):
    """An object whose methods may be `contained`."""

    def on_fault(self, error: Exception) -> None:
        """Handles an exception of a contained method."""


S = TypeVar("S", bound=FaultHandler)


def contained(method: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """Wraps a method so that each Exception is passed to `on_fault` and not raised."""

    @functools.wraps(method)
    def run(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - containment is the purpose; on_fault logs it
            self.on_fault(error)

    return run


class FaultLog:
    """Logs faults that may occur in every step: a traceback at the 1st, 2nd, 4th, 8th, … fault."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, error: Exception) -> None:
        """Counts one fault. O(1); n faults log about log2(n) tracebacks."""
        self.count += 1
        if self.count & (self.count - 1) == 0:
            log.error("metrics could not be recorded (fault %d): %r", self.count, error, exc_info=error)

"""The order of work on a device: enqueued now, executed later and one after the other."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

Work = Callable[[], None]
Wait = Callable[[], None]


class Stamp(Protocol):
    """A moment on the device's clock, known once everything before it was executed."""

    def since(self, earlier: Any) -> float:
        """Seconds from an earlier stamp of the same queue."""


class DeviceQueue(Protocol):
    """A stream. Work is put in by one thread at a time."""

    def put(self, work: Work) -> None:
        """Enqueue `work`, which must only enqueue."""

    def mark(self) -> Wait:
        """A callable that blocks until everything put before now was executed."""

    def stamp(self) -> Stamp | None:
        """The moment when everything put before now was executed; None for a device without a clock of its own."""


class CudaQueue:
    """The current stream of the device: kernels and copies from and to pinned memory return before they are executed."""

    def put(self, work: Work) -> None:
        """Enqueue the kernels of `work`."""
        work()

    def mark(self) -> Wait:
        """Record an event."""
        event = torch.cuda.Event()
        event.record()
        return event.synchronize

    def stamp(self) -> Stamp:
        """Record an event with its time."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return CudaStamp(event)


@dataclass(frozen=True, slots=True)
class CudaStamp:
    """See `Stamp`."""

    event: torch.cuda.Event

    def since(self, earlier: "CudaStamp") -> float:
        """Events count milliseconds."""
        return float(earlier.event.elapsed_time(self.event)) / 1000


class HostQueue:
    """A device that executes at once, as the CPU does."""

    def put(self, work: Work) -> None:
        """Execute `work`."""
        work()

    def mark(self) -> Wait:
        """Nothing is left to wait for."""
        return _nothing

    def stamp(self) -> None:
        """The host's clock is the device's."""


def _nothing() -> None:
    """The work has been executed already."""

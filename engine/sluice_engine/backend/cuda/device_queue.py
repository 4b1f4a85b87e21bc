"""The order of work on a device: enqueued now, executed later and one after the other."""

from collections.abc import Callable
from typing import Protocol

import torch

Work = Callable[[], None]
Wait = Callable[[], None]


class DeviceQueue(Protocol):
    """A stream. Work is put in by one thread at a time."""

    def put(self, work: Work) -> None:
        """Enqueue `work`, which must only enqueue."""

    def mark(self) -> Wait:
        """A callable that blocks until everything put before now was executed."""


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


class HostQueue:
    """A device that executes at once, as the CPU does."""

    def put(self, work: Work) -> None:
        """Execute `work`."""
        work()

    def mark(self) -> Wait:
        """Nothing is left to wait for."""
        return _nothing


def _nothing() -> None:
    """The work has been executed already."""

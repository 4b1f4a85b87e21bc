"""How long a device waits between decode steps, by its own clock: what is left of a time without the work enqueued in it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sluice_engine.backend.cuda.device_queue import DeviceQueue, Stamp, Wait, Work
from sluice_engine.backend.cuda.runner import GraphRunner

Span = tuple[Stamp, Stamp]


class TimedQueue:
    """A queue that notes begin and end of all work on the device's clock."""

    def __init__(self, queue: DeviceQueue) -> None:
        self._queue = queue
        self.spans: list[Span] = []

    def put(self, work: Work) -> None:
        """See `DeviceQueue`."""
        begin = self._queue.stamp()
        self._queue.put(work)
        end = self._queue.stamp()
        if begin is not None and end is not None:
            self.spans.append((begin, end))

    def mark(self) -> Wait:
        """See `DeviceQueue`."""
        return self._queue.mark()

    def stamp(self) -> Stamp | None:
        """See `DeviceQueue`."""
        return self._queue.stamp()


@contextmanager
def timed(runner: object) -> Iterator[list[Span]]:
    """The spans of what the runner enqueues in this block; none for a runner without graphs or a device without a clock."""
    spans: list[Span] = []
    if not isinstance(runner, GraphRunner):
        yield spans
        return
    plain = runner._queue
    queue = TimedQueue(plain)
    runner._queue = queue
    try:
        yield queue.spans
    finally:
        runner._queue = plain


def idle_share(spans: Sequence[Span]) -> float:
    """The part of the time from the first begin to the last end in which none of the spans was executed."""
    (first, _), (_, last) = spans[0], spans[-1]
    busy = sum(end.since(begin) for begin, end in spans)
    return max(0.0, 1.0 - busy / last.since(first))

"""The rate at which requests leave the queue to start, from which the wait of a new one is predicted."""

from typing import Final

# Weight of the newest interval; halved, the prediction follows a change of the fleet half as fast.
SMOOTHING: Final = 0.1


class StartRate:
    """Requests per second while the queue is not empty; 0 until two have started."""

    def __init__(self) -> None:
        self._interval: float | None = None
        self._last: float | None = None

    def started(self, now: float) -> None:
        """A request has started."""
        if self._last is not None:
            interval = max(0.0, now - self._last)
            self._interval = (
                interval if self._interval is None else self._interval + SMOOTHING * (interval - self._interval)
            )
        self._last = now

    def idle(self) -> None:
        """The queue is empty: the time until the next start says nothing of the fleet."""
        self._last = None

    def seconds(self, requests: int, now: float) -> float:
        """Predicted seconds until this many more requests have started; 0 while nothing is known.

        A start that is overdue counts: of a fleet that has stopped, no old rate is a prediction.
        """
        if self._interval is None:
            return 0.0
        overdue = 0.0 if self._last is None else max(0.0, now - self._last - self._interval)
        return requests * self._interval + overdue

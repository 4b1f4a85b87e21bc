"""Counts the connections and requests that are rejected before a handler sees them, and logs them without a flood."""

import logging
import time
from collections.abc import Callable
from typing import Final

from prometheus_client import Counter

LOG_SECONDS: Final = 10.0  # at most one line per reason in this time

log = logging.getLogger("sluice.gateway")


class RejectionLog:
    """The first rejection of a reason is logged at once, further ones together."""

    def __init__(self, counter: Counter, clock: Callable[[], float] = time.monotonic) -> None:
        """`counter` has the label `reason`."""
        self._counter = counter
        self._clock = clock
        self._logged_at: dict[str, float] = {}
        self._unlogged: dict[str, int] = {}

    def count(self, reason: str) -> None:
        """One more rejection for this reason, a word of `contract.GATEWAY_REJECTION_REASONS`."""
        self._counter.labels(reason).inc()
        count = self._unlogged.get(reason, 0) + 1
        now, last = self._clock(), self._logged_at.get(reason)
        if last is not None and now - last < LOG_SECONDS:
            self._unlogged[reason] = count
            return
        self._unlogged[reason], self._logged_at[reason] = 0, now
        log.warning("rejected before they were read: %d (%s)", count, reason)

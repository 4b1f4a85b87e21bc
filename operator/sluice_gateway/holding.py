"""Holding requests while no replica is ready; the first held request wakes a model that is scaled to zero.

The number of held requests is then the operator's only signal of demand. A request is held for as long as a replica
should take to start, and no longer. After that it is rejected with a Retry-After.
"""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Final

from sluice_gateway.errors import cannot_start

MAX_HELD: Final = 256  # requests held at once: each keeps its body in memory
POLL_SECONDS: Final = 0.2
START_MARGIN: Final = 1.5  # times the expected start: one start in five takes longer than expected
LEAST_HOLD_SECONDS: Final = 10.0


class HoldQueue:
    """Holds and counts requests.

    `expected()` is the seconds until a replica should be ready; None means that none is starting.
    """

    def __init__(
        self,
        *,
        hold: bool = False,
        expected: Callable[[], float | None] = lambda: None,
        on_change: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        poll: float = POLL_SECONDS,
        least: float = LEAST_HOLD_SECONDS,
        cannot_start: Callable[[], str] = lambda: "",
    ) -> None:
        """`on_change()` is called when the first request is held, and when none is any more.

        `poll`: poll interval, seconds. `least`: the shortest deadline of a held request, seconds.
        `cannot_start()` is why no replica can start, "" if one may.
        """
        self._hold = hold
        self._expected = expected
        self._on_change = on_change
        self._clock = clock
        self._poll = poll
        self._least = least
        self._cannot_start = cannot_start
        self.held = 0

    def retry_after(self) -> int:
        """Retry-After in whole seconds: the expected start, or 2 where none is known."""
        expected = self._expected()
        return 2 if expected is None else max(1, math.ceil(expected))

    async def wait(self, ready: Callable[[], bool]) -> bool:
        """Whether a replica is ready; where none is, hold the request until one is or the deadline passes.

        The deadline is `START_MARGIN` times the expected start and at least `least`. Nothing is held where holding is off
        or `MAX_HELD` requests are held. Raises Unavailable as soon as no replica can start.
        """
        if ready():
            return True
        self._check()
        if not self._hold or self.held >= MAX_HELD:
            return False
        self.held += 1
        if self.held == 1:
            self._on_change()
        try:
            return await self._held(ready)
        finally:
            self.held -= 1
            if not self.held:
                self._on_change()

    async def _held(self, ready: Callable[[], bool]) -> bool:
        begun, deadline = self._clock(), 0.0
        while not ready():
            deadline = max(deadline, START_MARGIN * (self._expected() or 0.0))
            if self._clock() - begun > max(deadline, self._least):
                return False
            await asyncio.sleep(self._poll)
            self._check()
        return True

    def _check(self) -> None:
        if reason := self._cannot_start():
            raise cannot_start(reason, float(self.retry_after()))

"""Holding requests while no replica is ready; the first held request wakes a model that is scaled to zero.

The number of held requests is then the operator's only signal of demand. A request is held for as long as a replica
should take to start, and no longer. After that it is rejected with a Retry-After.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Final

from sluice_gateway.replicas.backend import Backend

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
    ) -> None:
        """`on_change()` is called when the first request is held, and when none is any more.

        `poll`: poll interval, seconds. `least`: the shortest deadline of a held request, seconds.
        """
        self._hold = hold
        self._expected = expected
        self._on_change = on_change
        self._clock = clock
        self._poll = poll
        self._least = least
        self.held = 0

    def retry_after(self) -> int:
        """Retry-After in whole seconds: the expected start, or 2 where none is known."""
        expected = self._expected()
        return 2 if expected is None else max(1, math.ceil(expected))

    async def wait(self, backends: Callable[[], Sequence[Backend]]) -> tuple[Backend, ...]:
        """The ready replicas; where there are none, hold the request until one is ready or the deadline passes.

        The result is empty after the deadline, which is `START_MARGIN` times the expected start and at least `least`. It is
        empty at once where holding is off or `MAX_HELD` requests are held.
        """
        ready = tuple(backends())
        if ready or not self._hold or self.held >= MAX_HELD:
            return ready
        self.held += 1
        if self.held == 1:
            self._on_change()
        try:
            return await self._held(backends)
        finally:
            self.held -= 1
            if not self.held:
                self._on_change()

    async def _held(self, backends: Callable[[], Sequence[Backend]]) -> tuple[Backend, ...]:
        begun, deadline = self._clock(), 0.0
        while not (ready := tuple(backends())):
            deadline = max(deadline, START_MARGIN * (self._expected() or 0.0))
            if self._clock() - begun > max(deadline, self._least):
                break
            await asyncio.sleep(self._poll)
        return ready

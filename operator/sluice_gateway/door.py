"""Holding requests while there is no replica: the first one is what wakes a model that sleeps.

How many are held is the operator's only sign of demand then. A request is held for as long as a replica should take
to start, and no longer; who must leave is told when it is worth to come again.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from typing import Final

from sluice_gateway.backends import Backend

MOST: Final = 256  # held at once: each keeps its body in memory
LOOK_SECONDS: Final = 0.2
PATIENCE: Final = 1.5  # times the expected start: one in five takes longer than expected


class Door:
    """Counts who is held. `expected()` is how long a replica should still take, in seconds; None: none is coming."""

    def __init__(
        self,
        *,
        hold: bool = False,
        expected: Callable[[], float | None] = lambda: None,
        on_held: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        look: float = LOOK_SECONDS,
    ) -> None:
        """`on_held()` is called when the first request is held."""
        self._hold = hold
        self._expected = expected
        self._on_held = on_held
        self._clock = clock
        self._look = look
        self.held = 0

    def retry_after(self) -> int:
        """Whole seconds after which it is worth to ask again."""
        expected = self._expected()
        return 2 if expected is None else max(1, math.ceil(expected))

    async def wait(self, backends: Callable[[], Sequence[Backend]]) -> tuple[Backend, ...]:
        """The replicas; where there is none, hold the caller until there is one or it is not worth to wait on."""
        ready = tuple(backends())
        if ready or not self._hold or self.held >= MOST:
            return ready
        self.held += 1
        if self.held == 1:
            self._on_held()
        try:
            return await self._held(backends)
        finally:
            self.held -= 1

    async def _held(self, backends: Callable[[], Sequence[Backend]]) -> tuple[Backend, ...]:
        begun, patience = self._clock(), 0.0
        while not (ready := tuple(backends())):
            patience = max(patience, PATIENCE * (self._expected() or 0.0))
            if self._clock() - begun > max(patience, 10.0):
                break
            await asyncio.sleep(self._look)
        return ready

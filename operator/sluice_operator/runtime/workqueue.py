"""One worker per resource: passes over one key never overlap, concurrent passes are bounded, errors back off.

Any number of wake-ups during a pass leads to exactly one more pass; a hundred wake-ups in a second lead to a few.
"""

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from sluice.log_context import log_fields
from sluice_operator.cluster.client import ClusterError, Key
from sluice_operator.metrics import OperatorMetrics

log = logging.getLogger(__name__)

_PASS_SECONDS: Final = 60.0  # timeout of a pass: a longer one hangs
_FIRST_BACKOFF: Final = 0.5  # seconds; doubles with each failure
_LONGEST_RETRY_AFTER: Final = 30.0  # seconds that an API server may ask for, so that a change is acted on in time


@dataclass(frozen=True, slots=True)
class _Failed:
    """A pass that failed. `retry_after`: seconds that the API server asks to wait."""

    retry_after: float


class Workers:
    """Calls `reconcile(key)` repeatedly for every key that was woken, until it returns `math.inf`."""

    def __init__(
        self,
        reconcile: Callable[[Key], Awaitable[float]],
        *,
        limit: int = 10,
        gap: float = 0.5,
        backoff_cap: float = 15.0,
        metrics: OperatorMetrics | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`clock()` returns monotonic seconds; with it the passes of all keys are spread over their interval.

        At most `limit` concurrent passes, at least `gap` seconds between two passes over one key.

        After an error the worker waits at most `backoff_cap` seconds.
        """
        self._reconcile = reconcile
        self._slots = asyncio.Semaphore(limit)
        self._gap = gap
        self._cap = backoff_cap
        self._metrics = metrics or OperatorMetrics()
        self._sleep = sleep
        self._clock = clock
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._woken: dict[Key, asyncio.Event] = {}
        self._closed = False

    @property
    def keys(self) -> frozenset[Key]:
        """Keys that have a worker."""
        return frozenset(self._tasks)

    def wake(self, key: Key) -> None:
        """Request a pass over this key. Never blocks; has no effect after `close`."""
        if self._closed:
            return
        if key in self._tasks:
            self._woken[key].set()
            return
        self._woken[key] = asyncio.Event()
        self._tasks[key] = asyncio.create_task(self._work(key), name=f"reconciler of {key.namespace}/{key.name}")

    async def close(self) -> None:
        """End all workers now and ignore later wake-ups: this process no longer holds the Lease."""
        self._closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, key: Key) -> None:
        with log_fields(namespace=key.namespace, resource=key.name):
            await self._repeat(key)

    async def _repeat(self, key: Key) -> None:
        failures = 0
        woken = self._woken[key]
        try:
            while True:
                woken.clear()
                wait = await self._pass(key)
                if isinstance(wait, _Failed):
                    failures += 1
                    ceiling = min(self._cap, _FIRST_BACKOFF * 2 ** min(failures, 16))
                    await self._sleep(max(ceiling * random.uniform(0.5, 1.0), wait.retry_after))
                elif math.isinf(wait) and not woken.is_set():
                    return
                else:
                    failures = 0
                    await self._sleep(self._gap)
                    await self._wait(woken, self._until_turn(key, wait) - self._gap)
        finally:
            self._tasks.pop(key, None)
            self._woken.pop(key, None)

    def _until_turn(self, key: Key, wait: float) -> float:
        """Seconds until the key's own place in the interval `wait`, at least half of it.

        A thousand resources that were first seen together would otherwise be scraped together for ever.
        """
        if self._clock is None or math.isinf(wait):
            return wait
        turn = (key.phase * wait - self._clock()) % wait
        return turn if turn >= wait / 2 else turn + wait

    async def _wait(self, woken: asyncio.Event, seconds: float) -> None:
        """Wait until woken, for at most `seconds`."""
        if woken.is_set() or math.isinf(seconds):
            return
        sleeper = asyncio.ensure_future(self._sleep(max(0.0, seconds)))
        waker = asyncio.ensure_future(woken.wait())
        try:
            await asyncio.wait({sleeper, waker}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeper.cancel()
            waker.cancel()

    async def _pass(self, key: Key) -> "float | _Failed":
        """Run one pass; return its result."""
        async with self._slots:
            started = time.monotonic()
            result = "error"
            try:
                async with asyncio.timeout(_PASS_SECONDS):
                    wait = await self._reconcile(key)
                result = "ok"
            # A fault of one resource must not stop the others or its own next pass.
            except Exception as error:
                self._metrics.resources.failed(key.namespace, key.name)
                known = isinstance(error, (ClusterError, TimeoutError))
                log.warning(
                    "%s/%s: the pass failed and will be retried: %s",
                    key.namespace,
                    key.name,
                    str(error) or type(error).__name__,
                    exc_info=not known,
                )
                return _Failed(min(getattr(error, "retry_after", 0.0), _LONGEST_RETRY_AFTER))
            finally:
                self._metrics.reconciled(result, time.monotonic() - started)
            return wait

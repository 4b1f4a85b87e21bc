"""Lists everything that the cache holds: at the start, every ten minutes, and after a watch has listed again.

A watch that was interrupted lists anew and says nothing of what was deleted in between. The interval is jittered, so that
the operators of a cluster do not list together.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from sluice_operator.cluster.cache.store import ObjectCache
from sluice_operator.cluster.client import ClusterError, Key, Object

log = logging.getLogger(__name__)

INTERVAL: Final = 600.0  # seconds; halved, the lists of 1,000 resources are still below 0.1 requests per second
JITTER: Final = 0.1  # of the interval
QUIET: Final = 2.0  # seconds without another object of a watch's list, after which that list is complete
RETRY: Final = 5.0  # seconds after a list that failed

# kind → (all objects of the kind, resourceVersion of the list); raises ClusterError
Lists = Callable[[str], Awaitable[tuple[list[Object], str]]]


class Resync:
    """Keeps the cache complete. Times are seconds of `sleep`."""

    def __init__(
        self,
        cache: ObjectCache,
        lists: Lists,
        wake: Callable[[Key], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        kinds: Sequence[str] = (),
    ) -> None:
        """kinds: those that are watched; without any, all of the cache."""
        self._cache = cache
        self._lists = lists
        self._wake = wake
        self._sleep = sleep
        self._kinds = tuple(kinds) or cache.kinds
        self._requested = asyncio.Event()

    def request(self) -> None:
        """List again once the requests have ceased for `QUIET` seconds."""
        self._requested.set()

    async def fill(self) -> None:
        """List each kind until it succeeds."""
        for kind in self._kinds:
            while not await self._list(kind):
                await self._sleep(RETRY)

    async def run(self) -> None:
        """List again when it is due or requested, until cancelled."""
        while True:
            await self._due(INTERVAL * random.uniform(1 - JITTER, 1 + JITTER))
            while self._requested.is_set():
                self._requested.clear()
                await self._sleep(QUIET)
            await self.fill()

    async def _due(self, seconds: float) -> None:
        """Wait until requested, for at most `seconds`."""
        sleeper = asyncio.ensure_future(self._sleep(seconds))
        requested = asyncio.ensure_future(self._requested.wait())
        try:
            await asyncio.wait({sleeper, requested}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeper.cancel()
            requested.cancel()

    async def _list(self, kind: str) -> bool:
        try:
            things, version = await self._lists(kind)
        except ClusterError as error:
            log.warning("the cache keeps its state of %s: %s", kind, error)
            return False
        for key in sorted(self._cache.replace(kind, things, version)):
            self._wake(key)
        return True

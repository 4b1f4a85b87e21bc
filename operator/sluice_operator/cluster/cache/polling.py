"""Lists kinds that only some clusters have every 20 seconds: Kopf would watch a kind only if it existed at the start.

A kind is left alone while the cluster does not have it, and while the operator may not list it: it is then read by requests.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from sluice_operator.cluster.cache.resync import Lists
from sluice_operator.cluster.cache.store import ObjectCache
from sluice_operator.cluster.client import ClusterError, Key

log = logging.getLogger(__name__)

INTERVAL: Final = 20.0  # seconds; the lists of 1,000 objects are then 0.5 requests per second


class Polling:
    """Keeps these kinds of the cache as they were at most `INTERVAL` ago. `serves(kind)` may raise ClusterError."""

    def __init__(
        self,
        cache: ObjectCache,
        kinds: Sequence[str],
        lists: Lists,
        serves: Callable[[str], Awaitable[bool]],
        wake: Callable[[Key], None],
    ) -> None:
        self._cache = cache
        self._kinds = kinds
        self._lists = lists
        self._serves = serves
        self._wake = wake
        self._problem = ""

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """List again and again, until cancelled."""
        while True:
            for kind in self._kinds:
                await self.list(kind)
            await sleep(INTERVAL)

    async def list(self, kind: str) -> None:
        """List one kind once, and wake the resources whose objects have changed."""
        try:
            if not await self._serves(kind):
                return
            things, version = await self._lists(kind)
        except ClusterError as error:
            if str(error) != self._problem:
                log.warning("changes of %s by others are seen late: %s", kind, error)
            self._problem = str(error)
            return
        self._problem = ""
        for key in sorted(self._cache.replace(kind, things, version)):
            self._wake(key)

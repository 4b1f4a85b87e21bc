"""Leader election by a `coordination.k8s.io/Lease`: at most one operator process acts at a time.

Only the local monotonic clock is used. A candidate waits until it has observed no change of the Lease for the whole
Lease duration. The holder counts from before the request that renewed the Lease, and neither waits nor writes beyond
the renew deadline (10 s, of a 15 s duration): each write checks `remaining()`. The timestamps in the Lease are informational.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from sluice_operator.cluster.client import ClusterError
from sluice_operator.cluster.lease import LeaseRecord, LeaseStore

log = logging.getLogger(__name__)

_ATTEMPT_SECONDS: Final = 4.0  # timeout of one read and write


@dataclass(frozen=True, slots=True)
class Times:
    """Periods of the election, in seconds; the defaults are those of Kubernetes' own components."""

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0


class Election:
    """One candidate in the election."""

    def __init__(
        self,
        store: LeaseStore,
        identity: str,
        times: Times | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._store = store
        self._identity = identity
        self._times = times or Times()
        self._clock = clock
        self._sleep = sleep
        self._seen: LeaseRecord | None = None
        self._seen_at = 0.0
        self._renewed_at = -math.inf

    def remaining(self) -> float:
        """Return the seconds for which this process may still act; 0 or less if it does not hold the Lease."""
        return self._renewed_at + self._times.renew_deadline - self._clock()

    async def acquire(self) -> None:
        """Return once this process holds the Lease."""
        leader = ""
        while not await self._attempt():
            if self._seen is not None and self._seen.holder not in ("", leader):
                leader = self._seen.holder
                log.info("%s waits: %s holds the Lease", self._identity, leader)
            await self._sleep(self._times.retry)
        log.info("%s holds the Lease", self._identity)

    async def hold(self) -> str:
        """Renew the Lease until it is lost and return the cause.

        Returns before another process may act, whatever the latency of the API server.
        """
        while (left := self.remaining()) > 0:
            await self._sleep(min(self._times.retry, left))
            if self.remaining() <= 0 or await self._attempt():
                continue
            if self._seen is not None and self._seen.holder not in ("", self._identity):
                self._renewed_at = -math.inf
                return f"{self._seen.holder} holds the Lease now"
        return f"the Lease could not be renewed for {self._times.renew_deadline:.0f} s"

    async def release(self) -> None:
        """Release the Lease, so that the next holder need not wait. Never raises: the Lease expires anyway."""
        self._renewed_at = -math.inf
        try:
            record = await self._store.read()
            if record is not None and record.holder == self._identity:
                await self._store.replace(record, "", 1.0)
        except ClusterError as error:
            log.warning("the Lease could not be released and will expire: %s", error)

    async def _attempt(self) -> bool:
        """Acquire or renew once. A holder waits for the response no longer than `remaining()`."""
        started, left = self._clock(), self.remaining()
        try:
            async with asyncio.timeout(min(_ATTEMPT_SECONDS, left) if left > 0 else _ATTEMPT_SECONDS):
                won = await self._acquire_or_renew()
        except (ClusterError, TimeoutError) as error:
            log.warning("the Lease cannot be read or written now: %s", str(error) or "no answer")
            return False
        if won:
            self._seen = None  # `hold` must not report the previous holder as the next one
            self._renewed_at = started  # from before the request: never later than what other candidates observe
        return won

    async def _acquire_or_renew(self) -> bool:
        record = await self._observe()
        if record is None and self._is_held_by_other():  # it was deleted; its holder makes it anew
            return False
        if record is None:
            self._seen = None
            won = await self._store.create(self._identity, self._times.duration)
        elif self._is_free(record):
            won = await self._store.replace(record, self._identity, self._times.duration)
        else:
            return False
        if not won:  # another candidate was first; unseen, its Lease would count as free once it is deleted
            await self._observe()
        return won

    async def _observe(self) -> LeaseRecord | None:
        """Read the Lease, and note when it last changed."""
        record = await self._store.read()
        if record is not None and (self._seen is None or self._seen.version != record.version):
            self._seen, self._seen_at = record, self._clock()
        return record

    def _is_free(self, record: LeaseRecord) -> bool:
        """True for a Lease that this process may take or renew."""
        return record.holder in ("", self._identity) or self._clock() - self._seen_at >= record.duration

    def _is_held_by_other(self) -> bool:
        """True while the holder of the Lease as last seen may still act."""
        if self._seen is None or self._seen.holder in ("", self._identity):
            return False
        return self._clock() - self._seen_at < self._seen.duration

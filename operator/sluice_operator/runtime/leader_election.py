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
from datetime import UTC, datetime
from typing import Final, Protocol

from kubernetes.aio.client import ApiClient

from sluice_operator.cluster.client import Object, WorldError
from sluice_operator.cluster.kube import dynamic_client, path, request

log = logging.getLogger(__name__)

_ATTEMPT_SECONDS: Final = 4.0  # timeout of one read and write


@dataclass(frozen=True, slots=True)
class Times:
    """Periods of the election, in seconds; the defaults are those of Kubernetes' own components."""

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0


@dataclass(frozen=True, slots=True)
class Record:
    """The Lease as read. `version` changes with every write by any client."""

    holder: str
    duration: float
    version: str
    transitions: int = 0


class LeaseStore(Protocol):
    """Storage of the Lease. All methods raise WorldError."""

    async def read(self) -> Record | None:
        """Return the Lease, or None if it does not exist."""

    async def create(self, holder: str, duration: float) -> bool:
        """Create the Lease; False if it exists already."""

    async def replace(self, record: Record, holder: str, duration: float) -> bool:
        """Replace the Lease if it still has the version of `record`; False otherwise."""


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
        self._seen: Record | None = None
        self._seen_at = 0.0
        self._renewed_at = -math.inf

    def remaining(self) -> float:
        """Return the seconds for which this process may still act; 0 or less if it does not hold the Lease."""
        return self._renewed_at + self._times.renew_deadline - self._clock()

    async def acquire(self) -> None:
        """Return once this process holds the Lease."""
        while not await self._attempt():
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
                return f"the Lease went to {self._seen.holder}"
        return f"the Lease could not be renewed for {self._times.renew_deadline:.0f} s"

    async def release(self) -> None:
        """Release the Lease, so that the next holder need not wait. Never raises: the Lease expires anyway."""
        self._renewed_at = -math.inf
        try:
            record = await self._store.read()
            if record is not None and record.holder == self._identity:
                await self._store.replace(record, "", 1.0)
        except WorldError as error:
            log.warning("the Lease could not be released and runs out by itself: %s", error)

    async def _attempt(self) -> bool:
        """Acquire or renew once. A holder waits for the response no longer than `remaining()`."""
        started, left = self._clock(), self.remaining()
        try:
            async with asyncio.timeout(min(_ATTEMPT_SECONDS, left) if left > 0 else _ATTEMPT_SECONDS):
                won = await self._try()
        except (WorldError, TimeoutError) as error:
            log.warning("the Lease cannot be read or written now: %s", str(error) or "no answer")
            return False
        if won:
            self._seen = None  # `hold` must not report the previous holder as the next one
            self._renewed_at = started  # from before the request: never later than what other candidates observe
        return won

    async def _try(self) -> bool:
        record = await self._store.read()
        if record is None:
            self._seen = None
            return await self._store.create(self._identity, self._times.duration)
        if self._seen is None or self._seen.version != record.version:
            self._seen, self._seen_at = record, self._clock()
        free = record.holder in ("", self._identity) or self._clock() - self._seen_at >= record.duration
        return free and await self._store.replace(record, self._identity, self._times.duration)


class KubeLease:
    """The Lease on an API server, with optimistic locking by resourceVersion."""

    def __init__(self, client: ApiClient, namespace: str, name: str) -> None:
        self._dynamic = dynamic_client(client)
        self._where = {"name": name, "namespace": namespace}
        self._live: Object = {}

    async def read(self) -> Record | None:
        """Return the Lease, or None if it does not exist."""
        try:
            self._live = await request(self._dynamic, "get", path("Lease", **self._where))
        except WorldError as error:
            if error.status == 404:
                return None
            raise
        spec = self._live.get("spec") or {}
        return Record(
            holder=spec.get("holderIdentity") or "",
            duration=float(spec.get("leaseDurationSeconds") or 0),
            version=self._live["metadata"]["resourceVersion"],
            transitions=int(spec.get("leaseTransitions") or 0),
        )

    async def create(self, holder: str, duration: float) -> bool:
        """Create the Lease; False if it exists already."""
        spec = {**self._spec(holder, duration), "acquireTime": _now(), "leaseTransitions": 0}
        where = path("Lease", self._where["namespace"])
        return await self._write("post", where, {**self._head(), "spec": spec})

    async def replace(self, record: Record, holder: str, duration: float) -> bool:
        """Replace the Lease if it still has the version of `record`; False otherwise."""
        spec = {**(self._live.get("spec") or {}), **self._spec(holder, duration)}
        if holder != record.holder:
            spec |= {"acquireTime": _now(), "leaseTransitions": record.transitions + 1}
        body = self._head()
        body["metadata"]["resourceVersion"] = record.version
        return await self._write("put", path("Lease", **self._where), {**body, "spec": spec})

    def _head(self) -> Object:
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": dict(self._where)}

    @staticmethod
    def _spec(holder: str, duration: float) -> Object:
        return {"holderIdentity": holder, "leaseDurationSeconds": int(duration), "renewTime": _now()}

    async def _write(self, method: str, where: str, body: Object) -> bool:
        try:
            await request(self._dynamic, method, where, body=body)
        except WorldError as error:
            if error.status in (404, 409):
                return False
            raise
        return True


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

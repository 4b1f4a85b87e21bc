"""One operator acts at a time: election by a `coordination.k8s.io/Lease`.

Only the local monotonic clock is trusted. A candidate waits until the Lease has not changed for its whole duration
as seen from here; a holder that could not renew within the deadline stops before anyone else may start (10 s against
15 s). The stamps in the Lease are for people. Same times and rules as client-go.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Protocol

from kubernetes.aio.client import ApiClient

from sluice_operator.kube import dynamic_client, path, request
from sluice_operator.world import Object, WorldError

log = logging.getLogger(__name__)

LEASE_NAME: Final = "sluice-operator"
_ATTEMPT_SECONDS: Final = 4.0  # of one read and write


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds."""

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0


@dataclass(frozen=True, slots=True)
class Record:
    """The Lease as read. `version` changes with every write by anyone."""

    holder: str
    duration: float
    version: str
    transitions: int = 0


class LeaseStore(Protocol):
    """Where the Lease is kept. All raise WorldError."""

    async def read(self) -> Record | None:
        """The Lease, or None where there is none."""

    async def create(self, holder: str, duration: float) -> bool:
        """Make it; False where somebody was quicker."""

    async def replace(self, record: Record, holder: str, duration: float) -> bool:
        """Write over exactly this version; False where somebody was quicker."""


class Election:
    """One candidate."""

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
        self._renewed_at = 0.0

    async def acquire(self) -> None:
        """Return once we hold the Lease."""
        while not await self._attempt():
            await self._sleep(self._times.retry)
        log.info("%s holds the Lease", self._identity)

    async def hold(self) -> str:
        """Renew until it is lost; the answer says how."""
        while True:
            await self._sleep(self._times.retry)
            if await self._attempt():
                continue
            if self._seen is not None and self._seen.holder not in ("", self._identity):
                return f"the Lease went to {self._seen.holder}"
            if self._clock() - self._renewed_at >= self._times.renew_deadline:
                return f"the Lease could not be renewed for {self._times.renew_deadline:.0f} s"

    async def release(self) -> None:
        """Give it back, so that the next one need not wait. Never raises: the duration runs out anyway."""
        try:
            record = await self._store.read()
            if record is not None and record.holder == self._identity:
                await self._store.replace(record, "", 1.0)
        except WorldError as error:
            log.warning("the Lease could not be released and runs out by itself: %s", error)

    async def _attempt(self) -> bool:
        """Acquire or renew once."""
        started = self._clock()
        try:
            async with asyncio.timeout(_ATTEMPT_SECONDS):
                won = await self._try()
        except (WorldError, TimeoutError) as error:
            log.warning("the Lease cannot be read or written now: %s", str(error) or "no answer")
            return False
        if won:
            self._seen = None  # who held it before us is nobody's loss of ours
            self._renewed_at = started  # from before the request: never later than what others see
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
    """The Lease on an API server; optimistic locking by resourceVersion."""

    def __init__(self, client: ApiClient, namespace: str, name: str = LEASE_NAME) -> None:
        self._dynamic = dynamic_client(client)
        self._where = {"name": name, "namespace": namespace}
        self._live: Object = {}

    async def read(self) -> Record | None:
        """The Lease, or None."""
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
        """Make it; False where somebody was quicker."""
        spec = {**self._spec(holder, duration), "acquireTime": _now(), "leaseTransitions": 0}
        where = path("Lease", self._where["namespace"])
        return await self._write("post", where, {**self._head(), "spec": spec})

    async def replace(self, record: Record, holder: str, duration: float) -> bool:
        """Write over exactly this version; False where somebody was quicker."""
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

"""The operator's cache, fed by real watches of the API server through a feed that can lose and disorder their events.

A disordered feed holds events back, drops, repeats and reorders them. What it drops comes back with a later list of the
same kind, as after an interrupted watch in production.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Final

from kubernetes.aio.client import ApiClient

from sluice_kube.api import dynamic_client, request, transport
from sluice_kube.reflector import _lines
from sluice_operator.cluster.cache import Feed, ObjectCache, Resync
from sluice_operator.cluster.cache.resync import Lists
from sluice_operator.cluster.cache.store import is_newer
from sluice_operator.cluster.client import Key, Object
from sluice_operator.cluster.kinds import is_selected, path, selector
from sluice_operator.reconcile.context import Context
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.runtime.watches import watched_kinds
from sluice_operator.settings import NetworkPeers, Settings

KINDS: Final = watched_kinds(Settings(namespaces=("of one world",), network_peers=NetworkPeers(admin=())))
FATES: Final = ("delivered", "held back", "dropped", "repeated")
LISTS: Final = 0.25  # of the passes of a disordered feed begin with a list
PATIENCE: Final = 30.0  # seconds for an event on a busy machine
DELETED: Final = "deleted"

Event = tuple[str, str, Object]  # kind, change, object
Sight = tuple[str, str]  # uid and resourceVersion; DELETED in place of the version for an object that is gone


class WentBack(Exception):
    """An event has put an older state of an object in the place of a newer one."""


async def _at_once(_seconds: float) -> None:
    """No pause between two lists."""


@dataclass
class WatchedCache:
    """The cache of one operator process after the other, and the events of one namespace that it has not seen yet."""

    cache: ObjectCache = field(default_factory=lambda: ObjectCache(()))
    disorder: Random | None = None  # None: every event is delivered, in order
    pending: list[Event] = field(default_factory=list)
    _seen: set[Sight] = field(default_factory=set)
    _written: set[Sight] = field(default_factory=set)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _resync: Resync | None = None
    _is_filled: bool = False

    def restart(self, cache: ObjectCache, lists: Lists) -> None:
        """A new process begins, with this empty cache."""
        self.cache, self._is_filled = cache, False
        self._resync = Resync(cache, lists, lambda _key: None, _at_once)

    def arrive(self, event: Event) -> None:
        """Take an event from a watch."""
        metadata = event[2]["metadata"]
        self._seen |= {(metadata["uid"], metadata["resourceVersion"])}
        if event[1] == "DELETED":
            self._seen |= {(metadata["uid"], DELETED)}
        self.pending.append(event)
        self._arrived.set()

    def wrote(self, answer: Object, *, is_deletion: bool = False) -> None:
        """Note the answer of a write, whose event is to come."""
        metadata = answer.get("metadata") or {}
        if is_deletion and not metadata.get("deletionTimestamp"):
            uid = metadata.get("uid") or (answer.get("details") or {}).get("uid", "")
            if any(uid == known for known, _ in self._written):
                self._written |= {(uid, DELETED)}
        elif answer.get("kind") in KINDS and is_selected(answer["kind"], answer):
            self._written |= {(metadata["uid"], metadata["resourceVersion"])}

    async def deliver(self) -> None:
        """Wait until the events of all writes are here, and let the operator's process see them, or some of them."""
        async with asyncio.timeout(PATIENCE):
            while not self._written <= self._seen:
                self._arrived.clear()
                await self._arrived.wait()
        if self._resync is None:
            return
        if not self._is_filled:  # the process lists before it watches
            self.pending.clear()
            await self._fill()
        elif self.disorder is None:
            self._feed(self.pending)
            self.pending.clear()
        else:
            await self._deliver_disordered(self.disorder)

    async def recover(self) -> None:
        """End the disorder: what was held back comes at last, and a list repairs what was dropped."""
        if self.disorder is not None:
            self.disorder.shuffle(self.pending)
            self._feed(self.pending)
            self.pending.clear()
            await self._fill()
        self.disorder = None

    async def _deliver_disordered(self, draw: Random) -> None:
        now, later = [], []
        for event in self.pending:
            fate = draw.choice(FATES)
            now += [event] * (fate in ("delivered", "repeated"))
            later += [event] * (fate in ("held back", "repeated"))
        draw.shuffle(now)
        self._feed(now)
        self.pending[:] = later
        if draw.random() < LISTS:
            await self._fill()

    def _feed(self, events: Iterable[Event]) -> None:
        """Raises WentBack."""
        feed = Feed(self.cache, lambda _key: None)
        for kind, change, thing in events:
            name, version = (thing["metadata"][key] for key in ("name", "resourceVersion"))
            where = kind, thing["metadata"]["namespace"], name
            before = self.cache.version(*where)
            feed.event(kind, change, thing)
            if before and is_newer(before, version) and self.cache.version(*where) != before:
                raise WentBack(f"{change} {kind} {name} at {version} replaced {before}")

    async def _fill(self) -> None:
        if self._resync is not None:
            await self._resync.fill()
            self._is_filled = True


class WatchedReconciler(Reconciler):
    """The reconciler of a process whose cache is fed before each pass."""

    def __init__(self, context: Context, watched: WatchedCache) -> None:
        super().__init__(context)
        self._watched = watched

    async def reconcile(self, key: Key) -> float:
        """One pass, over what the watches have delivered."""
        await self._watched.deliver()
        return await super().reconcile(key)


class Streams:
    """One watch per kind over all namespaces, whose events go to the cache of their namespace."""

    def __init__(self, client: ApiClient) -> None:
        self._dynamic = dynamic_client(client)
        self._caches: dict[str, WatchedCache] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._opening = asyncio.Lock()

    async def open(self, namespace: str, cache: WatchedCache) -> None:
        """Pass the events of a namespace on to this cache, from now on."""
        self._caches[namespace] = cache
        async with self._opening:
            if not self._tasks:
                versions = await asyncio.gather(*map(self._version, KINDS))
                self._tasks = [asyncio.create_task(self._follow(*each)) for each in zip(KINDS, versions, strict=True)]

    async def close(self) -> None:
        """End the watches."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _version(self, kind: str) -> str:
        page = await request(self._dynamic, "get", path(kind), limit=1)
        return str(page["metadata"]["resourceVersion"])

    async def _follow(self, kind: str, version: str) -> None:
        response = await self._dynamic.request(
            "get",
            path(kind),
            serialize=False,
            watch="true",
            resource_version=version,
            label_selector=selector(kind) or None,
            _request_timeout=transport.aiohttp.ClientTimeout(total=None),
        )
        try:
            async for line in _lines(response.content):
                event = json.loads(line)
                cache = self._caches.get(event["object"]["metadata"].get("namespace", ""))
                if cache is not None:
                    cache.arrive((kind, event["type"], event["object"]))
        finally:
            # A TLS connection that is only closed needs more turns of the loop than there may be.
            if response.connection is not None and response.connection.transport is not None:
                response.connection.transport.abort()
            response.close()


@asynccontextmanager
async def streams(client: ApiClient) -> AsyncIterator[Streams]:
    """Watches that end with the block."""
    found = Streams(client)
    try:
        yield found
    finally:
        await found.close()

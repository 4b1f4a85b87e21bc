"""An operator that reconciles one resource of a real API server, and the state that it leaves there.

There are no controllers, so a state is what the operator wrote and nothing else. Each world has a namespace of its own.
The operator reads from its cache, as in production; the user of a world and its tests ask the API server.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, Final

from kubernetes.aio.client import ApiClient, Configuration

from sluice import contract
from sluice_operator.cluster.cache import ObjectCache
from sluice_operator.cluster.client import ClusterError, Key, Object
from sluice_operator.cluster.kinds import path
from sluice_operator.cluster.kube import KubeClient
from sluice_operator.reconcile.children.admin_token import derive
from sluice_operator.reconcile.context import Context
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.render import names
from sluice_operator.runtime.process import _list
from sluice_operator.settings import NetworkPeers, Settings
from tests.kube.api_server import TOKEN, ApiServer
from tests.kube.child_state import CHILDREN, state_of
from tests.kube.watched_cache import KINDS, Streams, WatchedCache, WatchedReconciler, streams
from tests.operator.fake_cluster import KEY_OF_OPERATOR, Clock, Engines, Killed

PASSES: Final = 6  # until a changed spec is carried out; the test of the fixpoint shows that it suffices
PASS_SECONDS: Final = 60.0  # between two passes, so that the windows of the law end
INTERVAL: Final = 5.0  # seconds between two passes without an event
RESTORED: Final = 30.0  # seconds within which a child is restored
STALE: Final = (404, 409)  # answers to a write that was judged by an old state; the next pass repeats it


class KillableClient(KubeClient):
    """The operator's own client; the process is killed after `kill_after` writes."""

    writes: tuple[str, ...] = ()
    kill_after: int | None = None
    disturb: Callable[[str], None] | None = None  # called before and after each request; its error is the request's
    watched: WatchedCache

    @classmethod
    def of(cls, client: ApiClient, cache: ObjectCache, watched: WatchedCache) -> "KillableClient":
        """The client of a new process."""
        made = cls(client, cache=cache)
        made.watched = watched
        return made

    def successor(self, cache: ObjectCache) -> "KillableClient":
        """The client of the next process, with the same killer and the record of all writes."""
        made = self.of(self._dynamic.client, cache, self.watched)
        made.writes, made.kill_after, made.disturb = self.writes, self.kill_after, self.disturb
        return made

    def impersonate(self, user: str) -> None:
        """Send all later requests as this user."""
        self._dynamic.client.set_default_header("Impersonate-User", user)

    async def _request(self, method: str, where: str, **parameters: Any) -> Object:
        what = f"{method} {where}"
        if self.disturb is not None:
            self.disturb(what)
        done = await super()._request(method, where, **parameters)
        if method != "get":
            self.watched.wrote(done, is_deletion=method == "delete")
        if self.disturb is not None:
            self.disturb(what)
        if method != "get":
            self.writes = (*self.writes, what)
            if self.kill_after is not None and len(self.writes) >= self.kill_after:
                raise Killed(where)
        return done


@dataclass
class World:
    """One resource, `chat`, in a namespace of its own, with the operator's client and clock."""

    server: ApiServer
    reader: KubeClient  # has no cache
    streams: Streams
    client: KillableClient
    clock: Clock = field(default_factory=Clock)
    process: Reconciler | None = None  # the newest one
    namespace: str = field(default_factory=lambda: f"w-{uuid.uuid4().hex[:8]}")

    @property
    def key(self) -> Key:
        return Key(self.namespace, "chat")

    def act_as(self, user: str) -> None:
        """Let the operator of this world have the rights of a user, by impersonation."""
        self.client.impersonate(user)

    def operator(self, **changes: Any) -> Reconciler:
        """A new operator process, without state; `changes` of its settings."""
        peers = NetworkPeers(admin=({"podSelector": {}},))
        settings = replace(Settings(engine_image="engine:1", network_peers=peers, hub_endpoint=""), **changes)
        cache = ObjectCache(KINDS)
        self.client = self.client.successor(cache)
        self.watched.restart(cache, partial(_list, self.client, (self.namespace,)))
        context = Context(self.client, Engines(), settings, KEY_OF_OPERATOR, clock=self.clock, wall=self.clock.wall)
        self.process = WatchedReconciler(context, self.watched)
        return self.process

    @property
    def watched(self) -> WatchedCache:
        """What the operator's watches have delivered, and what they have not."""
        return self.client.watched

    def disorder(self, seed: int | None) -> None:
        """From now on the operator misses events of its watches, and sees others late, twice or in another order."""
        self.watched.disorder = None if seed is None else Random(seed)

    async def create(self, spec: Object) -> None:
        """The user creates the namespace and the resource. Raises urllib.error.HTTPError if the spec is refused."""
        await self.streams.open(self.namespace, self.watched)
        await self.send("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        await self.send("POST", path(contract.KIND, self.namespace), document(spec))

    async def replace(self, spec: Object) -> None:
        """The user replaces the whole spec. Raises urllib.error.HTTPError if the spec is refused."""
        where = path(contract.KIND, self.namespace, "chat")
        live = await self.send("GET", where)
        await self.send("PUT", where, live | {"spec": spec})

    async def send(
        self, method: str, where: str, body: Object | None = None, content: str = "application/json"
    ) -> Object:
        """A request of the user. Raises urllib.error.HTTPError."""
        answer = await asyncio.to_thread(self.server.request, method, where, body, content)
        if method != "GET":
            self.watched.wrote(answer, is_deletion=method == "DELETE")
        return answer

    async def child(self, kind: str, name: str) -> Object:
        """A child. Raises LookupError if it does not exist."""
        found = await self.reader.get(kind, self.namespace, name)
        if found is None:
            raise LookupError(f"there is no {kind} {name}")
        return found

    async def condition(self, kind: str, name: str = "chat") -> Object:
        """A condition of a resource."""
        conditions = (await self.child(contract.KIND, name))["status"]["conditions"]
        return next(dict(each) for each in conditions if each["type"] == kind)

    async def pass_for(self, seconds: float) -> None:
        """Run the passes of the newest process that come within so many seconds without an event."""
        assert self.process is not None
        for _ in range(int(seconds / INTERVAL)):
            self.clock.now += INTERVAL
            await self.process.reconcile(self.key)

    async def settle(self, reconciler: Reconciler | None = None, passes: int = PASSES) -> Reconciler:
        """Run passes, of a new process unless one is given, and return it.

        An error by which the API server refuses what a disordered feed has caused ends its pass, as in production.
        """
        reconciler = reconciler or self.operator()
        for _ in range(passes):
            try:
                await reconciler.reconcile(self.key)
            except ClusterError as error:
                if self.watched.disorder is None or error.status not in STALE:
                    raise
            self.clock.now += PASS_SECONDS
        return reconciler

    async def recover(self) -> None:
        """The watches are whole again, and the process goes on. Without disorder there is nothing to do."""
        if self.watched.disorder is not None:
            await self.watched.recover()
            await self.settle(self.process)

    async def versions(self) -> dict[str, str]:
        """The resourceVersion of the resource and of every child, by kind and name."""
        found = await self._objects((*CHILDREN, contract.KIND))
        return {f"{each['kind']} {each['metadata']['name']}": each["metadata"]["resourceVersion"] for each in found}

    async def state(self) -> dict[str, Object]:
        """Every child by kind and name, without what differs between any two resources."""
        resource = await self.reader.get(contract.KIND, self.namespace, "chat")
        if resource is None:
            raise LookupError("the resource is gone")
        uid = str(resource["metadata"]["uid"])
        token = derive(KEY_OF_OPERATOR, uid)
        secret = names.admin_secret("chat", token)
        return state_of(await self._objects(CHILDREN), {secret: "SECRET", uid: "UID", self.namespace: "NAMESPACE"})

    async def _objects(self, kinds: tuple[str, ...]) -> list[Object]:
        lists = await asyncio.gather(*(self.reader.list(kind, self.namespace, {}) for kind in kinds))
        return [{"kind": kind} | each for kind, found in zip(kinds, lists, strict=True) for each in found]


def document(spec: Object, name: str = "chat") -> Object:
    """An LLMDeployment as a user writes it."""
    return {"apiVersion": contract.API_VERSION, "kind": contract.KIND, "metadata": {"name": name}, "spec": spec}


def in_worlds(server: ApiServer, story: Callable[[Callable[[], World]], Awaitable[None]]) -> None:
    """Run a story that makes worlds of its own."""

    async def told() -> None:
        async with worlds(server) as make:
            await story(make)

    asyncio.run(told())


@asynccontextmanager
async def worlds(server: ApiServer) -> AsyncIterator[Callable[[], World]]:
    """A function that makes worlds, each without a resource."""
    async with _client(server) as client, _client(server) as watching, streams(watching) as found:
        reader = KubeClient(watching)
        yield lambda: World(server, reader, found, KillableClient.of(client, ObjectCache(()), WatchedCache()))


def _client(server: ApiServer) -> ApiClient:
    configuration = Configuration(host=server.url)
    configuration.ssl_ca_cert = str(server.certificate)
    configuration.api_key = {"authorization": f"Bearer {TOKEN}"}
    configuration.verify_ssl = True
    return ApiClient(configuration=configuration)

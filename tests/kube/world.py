"""An operator that reconciles one resource of a real API server, and the state that it leaves there.

There are no controllers, so a state is what the operator wrote and nothing else. Each world has a namespace of its own.
"""

import asyncio
import copy
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from kubernetes.aio.client import ApiClient, Configuration

from sluice import contract
from sluice_operator.cluster.client import Key, Object
from sluice_operator.cluster.kinds import path
from sluice_operator.cluster.kube import KubeClient
from sluice_operator.reconcile.children.admin_token import derive
from sluice_operator.reconcile.context import Context
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.render import names
from sluice_operator.settings import NetworkPeers, Settings
from tests.kube.api_server import TOKEN, ApiServer
from tests.operator.fake_cluster import KEY_OF_OPERATOR, Clock, Engines, Killed

CHILDREN: Final = (
    "ConfigMap",
    "Deployment",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "Secret",
    "Service",
    "ServiceAccount",
)
PASSES: Final = 6  # until a changed spec is carried out; the test of the fixpoint shows that it suffices
PASS_SECONDS: Final = 60.0  # between two passes, so that the windows of the law end
_VOLATILE: Final = ("creationTimestamp", "generation", "managedFields", "ownerReferences", "resourceVersion", "uid")


class KillableClient(KubeClient):
    """The operator's own client; the process is killed after `kill_after` writes."""

    writes: tuple[str, ...] = ()
    kill_after: int | None = None
    disturb: Callable[[str], None] | None = None  # called before and after each request; its error is the request's

    def impersonate(self, user: str) -> None:
        """Send all later requests as this user."""
        self._dynamic.client.set_default_header("Impersonate-User", user)

    async def _request(self, method: str, where: str, **parameters: Any) -> Object:
        what = f"{method} {where}"
        if self.disturb is not None:
            self.disturb(what)
        done = await super()._request(method, where, **parameters)
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
    client: KillableClient
    clock: Clock = field(default_factory=Clock)
    namespace: str = field(default_factory=lambda: f"w-{uuid.uuid4().hex[:8]}")

    @property
    def key(self) -> Key:
        return Key(self.namespace, "chat")

    def act_as(self, user: str) -> None:
        """Let the operator of this world have the rights of a user, by impersonation."""
        self.client.impersonate(user)

    def operator(self) -> Reconciler:
        """A new operator process, without state."""
        peers = NetworkPeers(admin=({"podSelector": {}},))
        settings = Settings(engine_image="engine:1", network_peers=peers, hub_endpoint="")
        context = Context(self.client, Engines(), settings, KEY_OF_OPERATOR, clock=self.clock, wall=self.clock.wall)
        return Reconciler(context)

    async def create(self, spec: Object) -> None:
        """The user creates the namespace and the resource. Raises urllib.error.HTTPError if the spec is refused."""
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
        return await asyncio.to_thread(self.server.request, method, where, body, content)

    async def child(self, kind: str, name: str) -> Object:
        """A child. Raises LookupError if it does not exist."""
        found = await self.client.get(kind, self.namespace, name)
        if found is None:
            raise LookupError(f"there is no {kind} {name}")
        return found

    async def condition(self, kind: str, name: str = "chat") -> Object:
        """A condition of a resource."""
        conditions = (await self.child(contract.KIND, name))["status"]["conditions"]
        return next(dict(each) for each in conditions if each["type"] == kind)

    async def settle(self, reconciler: Reconciler | None = None, passes: int = PASSES) -> Reconciler:
        """Run passes, of a new process unless one is given, and return it."""
        reconciler = reconciler or self.operator()
        for _ in range(passes):
            await reconciler.reconcile(self.key)
            self.clock.now += PASS_SECONDS
        return reconciler

    async def versions(self) -> dict[str, str]:
        """The resourceVersion of the resource and of every child, by kind and name."""
        found = await self._objects((*CHILDREN, contract.KIND))
        return {f"{each['kind']} {each['metadata']['name']}": each["metadata"]["resourceVersion"] for each in found}

    async def state(self) -> dict[str, Object]:
        """Every child by kind and name, without what differs between any two resources."""
        resource = await self.client.get(contract.KIND, self.namespace, "chat")
        if resource is None:
            raise LookupError("the resource is gone")
        uid = str(resource["metadata"]["uid"])
        token = derive(KEY_OF_OPERATOR, uid)
        secret = names.admin_secret("chat", token)
        bare = json.dumps([_bare(each) for each in await self._objects(CHILDREN)])
        for mine, neutral in ((secret, "SECRET"), (uid, "UID"), (self.namespace, "NAMESPACE")):
            bare = bare.replace(mine, neutral)
        return {f"{each['kind']} {each['metadata']['name']}": each for each in json.loads(bare)}

    async def _objects(self, kinds: tuple[str, ...]) -> list[Object]:
        lists = await asyncio.gather(*(self.client.list(kind, self.namespace, {}) for kind in kinds))
        return [{"kind": kind} | each for kind, found in zip(kinds, lists, strict=True) for each in found]


def document(spec: Object, name: str = "chat") -> Object:
    """An LLMDeployment as a user writes it."""
    return {"apiVersion": contract.API_VERSION, "kind": contract.KIND, "metadata": {"name": name}, "spec": spec}


def _bare(thing: Object) -> Object:
    """An object without versions, times and the data that derive from the uid."""
    thing = copy.deepcopy(thing)
    thing["metadata"].get("annotations", {}).pop(contract.ANNOTATION_TEMPLATE, None)  # digests the Secret's name too
    for name in _VOLATILE:
        thing["metadata"].pop(name, None)
    if thing["kind"] == "Secret":
        thing.pop("data")
    if thing["kind"] == "Service":  # addresses that the API server assigns
        for name in ("clusterIP", "clusterIPs"):
            if thing["spec"].get(name, "None") not in ("None", ["None"]):
                del thing["spec"][name]
    return thing


def in_worlds(server: ApiServer, story: Callable[[Callable[[], World]], Awaitable[None]]) -> None:
    """Run a story that makes worlds of its own."""

    async def told() -> None:
        async with worlds(server) as make:
            await story(make)

    asyncio.run(told())


@asynccontextmanager
async def worlds(server: ApiServer) -> AsyncIterator[Callable[[], World]]:
    """A function that makes worlds, each without a resource."""
    configuration = Configuration(host=server.url)
    configuration.ssl_ca_cert = str(server.certificate)
    configuration.api_key = {"authorization": f"Bearer {TOKEN}"}
    configuration.verify_ssl = True
    async with ApiClient(configuration=configuration) as client:
        yield lambda: World(server, KillableClient(client))

"""An in-memory cluster that records writes, over the object store of LocalCluster.

Of the controllers it has only the results: the Deployment's status, and the ReplicaSets of the pods that a test adds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sluice import contract
from sluice_operator import render
from sluice_operator.api import parse as parse_resource
from sluice_operator.autoscaler.values import Bounds, EngineSample
from sluice_operator.cluster.client import (
    Endpoint,
    Key,
    Object,
    Objects,
    check_owner,
    controller_of,
    is_owned,
    oldest_of,
    served_name,
)
from sluice_operator.cluster.local.store import ObjectStore, object_key
from sluice_operator.cluster.pod_status import phase_of, template_hash
from sluice_operator.engines.client import ScrapeError, limits_body
from sluice_operator.engines.exposition import parse
from sluice_operator.model_check import HubReader, ModelChecks
from sluice_operator.reconcile.children.admin_token import derive
from sluice_operator.reconcile.context import Context
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.settings import Settings

KEY = Key("ns", "chat")
KEY_OF_OPERATOR = b"the key that all operators share"


class Killed(BaseException):
    """The operator's process is killed at this write."""


def manifest(**spec: Any) -> Object:
    """An LLMDeployment as the API server returns it."""
    return {
        "apiVersion": contract.API_VERSION,
        "kind": contract.KIND,
        "metadata": {"name": KEY.name, "namespace": KEY.namespace, "generation": 1},
        "spec": {
            "model": {"uri": "pvc://models/tiny"},
            "engine": {"accelerator": {"count": 0}},
            "scaling": {"minReplicas": 1, "maxReplicas": 4},
        }
        | spec,
    }


def exposition(**changes: float) -> str:
    """The metrics of an idle engine; `changes` replace a series by its metric's name without the prefix."""
    values = {
        contract.REQUESTS_RUNNING: 0.0,
        contract.REQUESTS_WAITING: 0.0,
        contract.TOKENS_IN_FLIGHT: 0.0,
        contract.KV_OCCUPANCY_RATIO: 0.0,
        f'{contract.KV_BLOCKS}{{state="free"}}': 100.0,
        f'{contract.CACHE_CONFIG_INFO}{{block_size="16",num_blocks="100"}}': 1.0,
    }
    values |= {f'{contract.ADMISSION_LIMIT}{{kind="{kind}"}}': 8.0 for kind in contract.LIMIT_KINDS}
    values |= {f"{contract.PREFIX}{name}": value for name, value in changes.items()}
    return "".join(f"{name} {value}\n" for name, value in values.items())


def pod(name: str, *, ready: bool = True, hash_: str = "v1", **status: Any) -> Object:
    """An engine pod: ready, or with this `status`."""
    if ready:
        status = {
            "podIP": "10.0.0.1",
            "startTime": "2026-11-21T08:00:01Z",
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T08:00:01Z"},
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T08:00:10Z"},
            ],
            "containerStatuses": [
                {"name": "engine", "restartCount": 0, "state": {"running": {"startedAt": "2026-11-21T08:00:03Z"}}}
            ],
        } | status
    labels = {contract.LABEL_NAME: contract.ENGINE_APP, contract.LABEL_INSTANCE: KEY.name, "pod-template-hash": hash_}
    metadata = {
        "name": name,
        "namespace": KEY.namespace,
        "labels": labels,
        "creationTimestamp": "2026-11-21T08:00:00Z",
        "ownerReferences": [{"kind": "ReplicaSet", "uid": f"set-{hash_}", "controller": True}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "n"}, "status": status}


@dataclass
class Clock:
    """Both clocks; a test advances them."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now

    def wall(self) -> datetime:
        return datetime.fromtimestamp(1_790_000_000 + self.now, UTC)


@dataclass
class FakeCluster:
    """`ClusterClient` in memory. The process is killed after `kill_after` writes."""

    store: ObjectStore = field(default_factory=lambda: ObjectStore(lambda: 1_790_000_000.0))
    kill_after: int | None = None
    writes: list[str] = field(default_factory=list)
    events: list[tuple[str, str, bool]] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    held_requests: int | None = None  # that the gateway holds; None: no gateway
    newest: str = "v1"  # the hash of the pods that are made from the Deployment's template
    optional_kinds: set[str] = field(default_factory=set)  # kinds that only some clusters have
    controlled: bool = True  # False: the Deployment controller lags, so the status does not change

    def held(self, namespace: str, name: str) -> int | None:
        return self.held_requests

    async def serves(self, kind: str) -> bool:
        return kind in self.optional_kinds

    def _wrote(self, what: str) -> None:
        self.writes.append(what)
        if self.kill_after is not None and len(self.writes) >= self.kill_after:
            raise Killed(what)

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        if kind == "Deployment" and self.controlled:
            self._control()
        return self.store.get(kind, namespace, name)

    async def child(self, kind: str, namespace: str, name: str, owner: Object) -> Object | None:
        found = await self.get(kind, namespace, name)
        return found if found is not None and is_owned(found, owner) else None

    def _control(self) -> None:
        """The Deployment controller writes its status."""
        metadata, before = self.deployment.get("metadata", {}), self.deployment.get("status") or {}
        live = [each for each in self.pods if not each["metadata"].get("deletionTimestamp")]
        ready = [each for each in live if phase_of(each)[0] == "ready"]
        now = {
            "observedGeneration": metadata.get("generation", 1),
            "replicas": len(live),
            "updatedReplicas": sum(template_hash(each) == self.newest for each in live),
            "readyReplicas": len(ready),
        }
        self.store.set_status("Deployment", KEY.namespace, KEY.name, before | now)

    def _replica_sets(self) -> list[Object]:
        """One per template version that has pods."""
        owner = {"controller": True, "uid": self.deployment.get("metadata", {}).get("uid", "")}
        hashes = sorted({template_hash(each) for each in self.pods})
        return [{"metadata": {"uid": f"set-{each}", "ownerReferences": [owner]}} for each in hashes]

    async def list(self, kind: str, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        if kind == "ReplicaSet":
            return self._replica_sets()
        return self.pods if kind == "Pod" else self.store.list(kind, namespace, labels)

    async def controlled_by(self, kind: str, namespace: str, uid: str, labels: Mapping[str, str]) -> Objects:
        return [each for each in await self.list(kind, namespace, labels) if controller_of(each) == uid]

    async def serving(self, namespace: str, name: str) -> Objects:
        return [each for each in self.store.list(contract.KIND, namespace, {}) if served_name(each) == name]

    async def oldest_serving(self, name: str) -> Key | None:
        return oldest_of(self.store.list(contract.KIND, "", {}), name)

    def holds(self, kind: str) -> bool:
        return kind != "PodMonitor"

    async def apply(self, manifest: Object, *, owner: Object | None = None) -> Object:
        if manifest["kind"] == "Pod":
            found = next(p for p in self.pods if p["metadata"]["name"] == manifest["metadata"]["name"])
            found["metadata"].setdefault("annotations", {}).update(manifest["metadata"]["annotations"])
            self._wrote(f"apply Pod {manifest['metadata']['name']}")
            return found
        if owner is not None and self.store.get(*object_key(manifest)) is None:
            check_owner(self.store.get(*object_key(owner)), owner)
        done = self.store.apply(manifest, owner=owner)
        self._wrote(f"apply {manifest['kind']} {manifest['metadata']['name']}")
        return done

    async def create(self, manifest: Object, *, owner: Object | None = None) -> Object | None:
        if owner is not None:
            check_owner(self.store.get(*object_key(owner)), owner)
        done = self.store.create(manifest)
        self._wrote(f"create {manifest['kind']}")
        return done

    async def delete(self, kind: str, namespace: str, name: str) -> None:
        self.pods = [each for each in self.pods if (kind, each["metadata"]["name"]) != ("Pod", name)]
        self._wrote(f"delete {kind} {name}")

    async def write_status(self, resource: Object, status: Object) -> None:
        self.store.set_status(contract.KIND, KEY.namespace, KEY.name, status)
        self._wrote("status")

    async def emit_event(self, resource: Object, reason: str, message: str, *, warning: bool) -> None:
        self.events.append((reason, message, warning))
        self._wrote(f"event {reason}")

    def endpoint(self, pod: Object) -> Endpoint | None:
        return Endpoint(pod["metadata"]["name"], "10.0.0.1", 8001) if pod["status"].get("podIP") else None

    # --- accessors for tests ---------------------------------------------------------------------------------------

    @property
    def resource(self) -> Object:
        found = self.store.get(contract.KIND, KEY.namespace, KEY.name)
        if found is None:
            raise LookupError("the resource is gone")
        return found

    @property
    def status(self) -> Object:
        return dict(self.resource.get("status") or {})

    @property
    def deployment(self) -> Object:
        return self.store.get("Deployment", KEY.namespace, KEY.name) or {}

    def condition(self, kind: str) -> Object:
        return next(dict(each) for each in self.status["conditions"] if each["type"] == kind)

    def edit(self, **spec: Any) -> None:
        """The user applies another spec."""
        changed = manifest(**spec)
        metadata = self.resource["metadata"]
        changed["metadata"] |= {"generation": metadata.get("generation", 1) + 1, "uid": metadata["uid"]}
        self.store.apply(changed)


@dataclass
class Engines:
    """Fake engines: one exposition for all, or no answer."""

    text: str | None = field(default_factory=exposition)
    scraped: list[str] = field(default_factory=list)
    patched: list[tuple[str, str, Bounds]] = field(default_factory=list)
    told: list[tuple[str, float]] = field(default_factory=list)  # (pod, Retry-After of a missing replica)
    lasting: list[float] = field(default_factory=list)  # TTL of each PATCH in seconds
    refusal: str = ""  # the error of every PATCH

    async def scrape(self, endpoint: Endpoint) -> EngineSample:
        self.scraped.append(endpoint.pod)
        if self.text is None:
            raise ScrapeError(f"pod {endpoint.pod} did not answer")
        return parse(self.text)

    async def patch_limits(
        self, endpoint: Endpoint, token: str, bounds: Bounds | None, retry_after: float, ttl: float = 0.0
    ) -> None:
        if self.refusal:
            raise ScrapeError(f"pod {endpoint.pod} {self.refusal}")
        self.lasting.append(limits_body(bounds, retry_after, ttl)["ttl_seconds"])
        self.told.append((endpoint.pod, retry_after))
        if bounds is not None:
            self.patched.append((endpoint.pod, token, bounds))


def operator(
    cluster: FakeCluster,
    engines: Engines | None = None,
    clock: Clock | None = None,
    hub: str | None = None,
) -> Reconciler:
    """A new operator process, without state. hub: URL of the hub whose models it checks; None: it checks none."""
    clock = clock or Clock()
    settings = Settings(engine_image="engine:1", interval=5.0, hub_endpoint=hub or "")
    models = None if hub is None else ModelChecks(HubReader(hub), clock)
    context = Context(
        cluster, engines or Engines(), settings, KEY_OF_OPERATOR, clock=clock, wall=clock.wall, models=models
    )
    return Reconciler(context)


def cluster_with(resource: Object | None = None) -> FakeCluster:
    """A cluster that holds one resource."""
    cluster = FakeCluster()
    cluster.store.apply(resource or manifest())
    return cluster


def token_of(cluster: FakeCluster) -> str:
    """The admin token of the resource."""
    return derive(KEY_OF_OPERATOR, str(cluster.resource["metadata"]["uid"]))


def deployed(cluster: FakeCluster, *pods: Object) -> FakeCluster:
    """The same cluster with the Deployment that an earlier operator applied, and these pods of it."""
    resource = parse_resource(cluster.resource, strict=False)
    *_, manifest = render.children(
        resource, defaults=render.PodDefaults("engine:1"), replicas=1, token=token_of(cluster)
    )
    cluster.store.apply(manifest, owner=cluster.resource)
    cluster.pods = list(pods)
    return cluster


async def settle(cluster: FakeCluster, clock: Clock | None = None, passes: int = 4) -> None:
    """Run this many passes of one operator."""
    reconciler = operator(cluster, clock=clock)
    for _ in range(passes):
        await reconciler.reconcile(KEY)

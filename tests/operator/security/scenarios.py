"""All that the operator and the gateway ask of an API server, by their own code over HTTP.

A refused request does not end a scenario: the next steps show what else is refused.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from kubernetes.aio.client import ApiClient, Configuration

from sluice_gateway.cluster.directory import Directory
from sluice_gateway.cluster.discovery import Discovery
from sluice_gateway.cluster.peers import watched_peers
from sluice_operator.cluster.cache import ObjectCache, Polling
from sluice_operator.cluster.client import ClusterError, Key, OwnerDeleted
from sluice_operator.cluster.kinds import GROUPS
from sluice_operator.cluster.kube import KubeClient
from sluice_operator.cluster.lease import KubeLease, LeaseRecord
from sluice_operator.gateways.watch import Gateways
from sluice_operator.reconcile.children.admin_token import make_key, older_keys, operator_key, share_reads
from sluice_operator.reconcile.context import Context
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.runtime.process import _list
from sluice_operator.runtime.watches import polled_kinds, watch, watched_kinds
from sluice_operator.settings import Settings
from tests.operator.fake_cluster import KEY_OF_OPERATOR, Clock, Engines, manifest, pod
from tests.operator.reconcile.test_problems import CRASHED
from tests.operator.security.authorizing_api_server import AuthorizingApiServer, Object
from tests.operator.security.chart_objects import NAMESPACE, RELEASE

KEY: Final = Key("apps", "chat")


async def operate(server: AuthorizingApiServer, settings: Settings, folder: Path) -> None:
    """The life of an operator: Lease, key, watches, and one resource that starts, scales in, tries a canary, crashes and
    is closed off."""
    async with _client(server) as client:
        cluster = KubeClient(client, cache=_cached(settings))
        await _attempt(_hold_lease(KubeLease(client, settings.pod_namespace, settings.lease_name)))
        await _attempt(operator_key(cluster, settings.pod_namespace, settings.key_secret))
        for key in (KEY_OF_OPERATOR, make_key()):
            await _attempt(older_keys(cluster, settings.pod_namespace, settings.keyring_secret, key))
            await _attempt(share_reads(cluster, settings.pod_namespace, settings.read_secret, key))
        await _follow_gateways(server, Gateways(client, settings.pod_namespace, settings.gateway_service))
        await watch_by_kopf(server, settings, folder)
        lists = partial(_list, cluster, settings.namespaces)
        for kind in polled_kinds(settings):
            await Polling(ObjectCache((kind,)), (kind,), lists, cluster.serves, lambda _: None).list(kind)
        await _reconcile_all(server, Context(cluster, Engines(), settings, KEY_OF_OPERATOR))


def _cached(settings: Settings) -> ObjectCache:
    """Of the watched kinds, those of which nothing is read again before a write: no request, and no right, reads one of them.
    The watch has delivered none."""
    cache = ObjectCache([kind for kind in watched_kinds(settings) if kind == "Namespace"])
    for kind in cache.kinds:
        cache.replace(kind, (), "1")
    return cache


async def route(server: AuthorizingApiServer, namespaces: list[str]) -> None:
    """What a gateway reads."""
    found = [f"{namespace}/{kind}" for namespace in namespaces or [""] for kind in ("llmdeployments", "endpointslices")]
    found.append(f"{NAMESPACE}/endpointslices")
    async with (
        _client(server) as client,
        Discovery(client, namespaces, Directory()).running(),
        watched_peers(client, f"{NAMESPACE}/{RELEASE}-sluice-gateway", lambda *_: None),
        asyncio.timeout(10),
    ):
        await server.wait_for(*(("list", each) for each in found))
        if not server.refused:
            await server.wait_for(*(("watch", each) for each in found))


async def _attempt(step: Awaitable[Any]) -> None:
    with contextlib.suppress(ClusterError, OwnerDeleted):
        await step


@contextlib.asynccontextmanager
async def _client(server: AuthorizingApiServer) -> AsyncIterator[ApiClient]:
    async with ApiClient(configuration=Configuration(host=server.url)) as client:
        yield client


async def _hold_lease(lease: KubeLease) -> None:
    await lease.read()
    await lease.create("a", 15)
    await lease.replace(await lease.read() or LeaseRecord("a", 15, "1"), "a", 15)


async def _follow_gateways(server: AuthorizingApiServer, gateways: Gateways) -> None:
    """Until the watch is open; one that is refused is repeated with a pause and needs no wait."""
    task = asyncio.create_task(gateways.run(lambda _: None))
    async with asyncio.timeout(10):
        await server.wait_for(("list", "endpointslices"))
        if not server.refused:
            await server.wait_for(("watch", "endpointslices"))
    await _cancel(task)


async def watch_by_kopf(
    server: AuthorizingApiServer, settings: Settings, folder: Path, namespaces: tuple[str, ...] = ()
) -> None:
    """Until each watch is open, in each of the namespaces. Kopf reads the kubeconfig that KUBECONFIG names."""
    named = {"name": "test"}
    (folder / "kubeconfig").write_text(
        json.dumps(
            {
                "current-context": "test",
                "contexts": [named | {"context": {"cluster": "test", "user": "test"}}],
                "clusters": [named | {"cluster": {"server": server.url}}],
                "users": [named | {"user": {"token": "t"}}],
            }
        )
    )
    task = asyncio.create_task(watch(settings, lambda *_: None, lambda *_: None))
    async with asyncio.timeout(10):
        plurals = [GROUPS[kind][2] for kind in watched_kinds(settings)]
        watched = [f"{namespace}/{plural}" for namespace in namespaces for plural in plurals] or plurals
        await server.wait_for(*(("list", resource) for resource in watched))
        if not server.refused:
            await server.wait_for(*(("watch", resource) for resource in watched))
    await _cancel(task)


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _reconcile_all(server: AuthorizingApiServer, context: Context) -> None:
    clock = Clock()
    context = replace(context, clock=clock, wall=clock.wall)
    reconciler = Reconciler(context)
    engine = {"accelerator": {"count": 1}}  # of which the namespace may have a budget
    document = _moved(manifest(scaling={"minReplicas": 3, "maxReplicas": 4}, engine=engine))
    server.store.apply(document)
    await _passes(reconciler, clock, 2)
    _run_pods(server)
    await _passes(reconciler, clock, 2)
    server.store.apply(document | {"spec": document["spec"] | {"scaling": {"minReplicas": 1, "maxReplicas": 2}}})
    await _passes(reconciler, clock, 2)
    await _try_a_canary(server, reconciler, clock, document)
    _run_pods(server, **CRASHED)
    await _passes(reconciler, clock, 12)
    closed = replace(context, settings=replace(context.settings, network_peers=None, pod_monitor=None))
    await _passes(Reconciler(closed), clock, 1)


async def _try_a_canary(server: AuthorizingApiServer, reconciler: Reconciler, clock: Clock, document: Object) -> None:
    """It begins, and ends because the spec is changed back."""
    spec = document["spec"] | {"rollout": {"canary": {}}}
    for engine in (spec["engine"] | {"image": "engine:2"}, spec["engine"]):
        server.store.apply(document | {"spec": spec | {"engine": engine}})
        await _passes(reconciler, clock, 3)


async def _passes(reconciler: Reconciler, clock: Clock, count: int) -> None:
    for _ in range(count):
        await _attempt(reconciler.reconcile(KEY))
        clock.now += 5


def _moved(thing: Object) -> Object:
    return thing | {"metadata": thing["metadata"] | {"namespace": KEY.namespace}}


def _run_pods(server: AuthorizingApiServer, **status: Any) -> None:
    """What the Deployment controller and the kubelet do."""
    deployment = server.store.get("Deployment", *(KEY.namespace, KEY.name))
    if deployment is None:
        return
    reference = {"kind": "Deployment", "uid": deployment["metadata"]["uid"], "controller": True}
    metadata = {"name": "chat-v1", "namespace": KEY.namespace, "uid": "set-v1", "ownerReferences": [reference]}
    server.store.apply({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata})
    for name in ("a", "b", "c"):
        made = _moved(pod(name, ready=not status, **status))
        server.store.apply(made)
        server.store.set_status("Pod", KEY.namespace, name, made["status"])

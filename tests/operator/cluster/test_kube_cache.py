"""`KubeClient` with a cache over HTTP: what it asks, and what the next pass sees of the operator's own writes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from aiohttp import web
from kubernetes.aio.client import ApiClient, Configuration

from sluice import contract
from sluice_operator.cluster.cache import ObjectCache, Polling, Resync
from sluice_operator.cluster.client import ClusterError, ForeignObject, Object
from sluice_operator.cluster.kube import KubeClient
from sluice_operator.reconcile.context import Context
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.runtime.process import _list
from sluice_operator.runtime.watches import polled_kinds, watched_kinds
from sluice_operator.settings import PodMonitorSettings, Settings
from tests.operator.fake_cluster import KEY, KEY_OF_OPERATOR, Clock, Engines, manifest, pod
from tests.operator.security.authorizing_api_server import AuthorizingApiServer
from tests.operator.security.chart_objects import NAMESPACE, stored
from tests.operator.security.permissions import permissions_of

ROLE = permissions_of("blue-sluice", NAMESPACE, stored("default"))


@dataclass
class CountingApiServer(AuthorizingApiServer):
    """Records each request."""

    asked: list[str] = field(default_factory=list)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path}")
        return await super()._answer(request)


@dataclass
class Operator:
    """An operator whose watches deliver nothing: it knows the lists, and its own writes."""

    server: CountingApiServer
    client: KubeClient
    cache: ObjectCache
    clock: Clock
    reconciler: Reconciler

    async def list_all(self) -> None:
        kinds = watched_kinds(Settings())
        await Resync(self.cache, partial(_list, self.client, ""), lambda _: None, kinds=kinds).fill()

    def delete(self, thing: Object) -> None:
        """Another writer deletes an object, and its watch, if it has one, says so."""
        where = (thing["kind"], thing["metadata"]["namespace"], thing["metadata"]["name"])
        self.cache.remove(thing["kind"], self.server.store.get(*where) or thing)
        self.server.store.delete(*where)

    def delete_secret(self, secret: Object) -> None:
        """Another writer deletes a Secret, and the garbage collector what it owns."""
        self.delete(secret)
        for owned in self.server.store.list("ConfigMap", KEY.namespace, {}):
            if {each["uid"] for each in owned["metadata"]["ownerReferences"]} == {secret["metadata"]["uid"]}:
                self.delete(owned)

    async def reconcile(self, after: float = 30.0) -> list[str]:
        """The requests of one pass, so many seconds after the one before."""
        self.clock.now += after
        self.server.asked.clear()
        await self.reconciler.reconcile(KEY)
        return list(self.server.asked)


@asynccontextmanager
async def operating(resource: Object | None = None, **changes: Any) -> AsyncIterator[Operator]:
    async with (
        CountingApiServer(ROLE).running() as server,
        ApiClient(configuration=Configuration(host=server.url)) as http,
    ):
        assert isinstance(server, CountingApiServer)
        server.store.apply(resource or manifest())
        settings, clock = Settings(engine_image="engine:1", hub_endpoint="", **changes), Clock()
        cache = ObjectCache((*watched_kinds(settings), *polled_kinds(settings)))
        client = KubeClient(http, cache=cache)
        context = Context(client, Engines(), settings, KEY_OF_OPERATOR, clock=clock, wall=clock.wall)
        made = Operator(server, client, cache, clock, Reconciler(context))
        await made.list_all()
        yield made


def run_pod(server: CountingApiServer) -> None:
    """What the Deployment controller and the kubelet do."""
    deployment = server.store.get("Deployment", KEY.namespace, KEY.name) or {}
    reference = {"kind": "Deployment", "uid": deployment["metadata"]["uid"], "controller": True}
    labels = pod("a")["metadata"]["labels"]
    metadata = {"name": "chat-v1", "namespace": KEY.namespace, "uid": "set-v1", "labels": labels}
    server.store.apply(
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata | {"ownerReferences": [reference]}}
    )
    server.store.apply(pod("a"))
    server.store.set_status("Pod", KEY.namespace, "a", pod("a")["status"])


@pytest.mark.parametrize("count", [0, 1], ids=["on CPUs", "of an accelerator budget"])
@pytest.mark.parametrize("auth", ["policy", "token"])
async def test_a_pass_in_steady_state_makes_no_request(count: int, auth: str) -> None:
    engine = {"accelerator": {"count": count}}
    async with operating(manifest(engine=engine), accelerator_budget="nvidia.com/gpu=8", metrics_auth=auth) as operator:
        assert f"PATCH /apis/apps/v1/namespaces/{KEY.namespace}/deployments/{KEY.name}" in await operator.reconcile()
        run_pod(operator.server)
        await operator.list_all()
        await operator.reconcile()  # the pod is ready: the status says so
        await operator.reconcile()
        for _ in range(200):
            assert await operator.reconcile() == []
        scraper = operator.reconciler.context.scraper
        assert isinstance(scraper, Engines) and len(scraper.scraped) >= 20


async def test_a_deleted_secret_is_made_again_when_its_sentinel_is_gone() -> None:
    async with operating(metrics_auth="token") as operator:
        await operator.reconcile()
        before = operator.server.store.list("Secret", KEY.namespace, {})
        assert len(before) == 2
        for secret in before:
            operator.delete_secret(secret)
            assert [each.rpartition("/")[2] for each in await operator.reconcile()] == ["chat", "secrets", "configmaps"]
        after = operator.server.store.list("Secret", KEY.namespace, {})
        assert [each["data"] for each in after] == [each["data"] for each in before]
        assert await operator.reconcile() == []


async def test_a_deleted_or_changed_sentinel_is_restored_and_shows_a_later_deletion() -> None:
    async with operating() as operator:
        await operator.reconcile()
        (secret,) = operator.server.store.list("Secret", KEY.namespace, {})
        where = ("ConfigMap", KEY.namespace, secret["metadata"]["name"])
        before = operator.server.store.get(*where) or {}
        changes: list[Object] = [{"labels": {}}, {"ownerReferences": []}]
        for metadata in changes:
            operator.server.store.apply(before | {"metadata": before["metadata"] | metadata})
            await operator.list_all()
            if not metadata.get("labels", True):
                operator.cache.forget(*where)  # the watch selects it no more
            await operator.reconcile()
            restored = (operator.server.store.get(*where) or {})["metadata"]
            assert {name: restored[name] for name in metadata} == {name: before["metadata"][name] for name in metadata}
        operator.delete(before)
        await operator.reconcile()
        assert operator.server.store.get(*where) is not None
        operator.delete_secret(secret)
        await operator.reconcile()
        assert operator.server.store.list("Secret", KEY.namespace, {}) != []


async def test_another_secret_in_the_place_of_a_deleted_one_is_no_loop_of_requests() -> None:
    async with operating() as operator:
        await operator.reconcile()
        (secret,) = operator.server.store.list("Secret", KEY.namespace, {})
        made = 0
        for _ in range(60):  # the collector deletes each sentinel, because its owner has another uid
            for owned in operator.server.store.list("ConfigMap", KEY.namespace, {}):
                if owned["metadata"]["name"] == secret["metadata"]["name"]:
                    operator.delete(owned)
            made += f"POST /api/v1/namespaces/{KEY.namespace}/configmaps" in await operator.reconcile(after=1.0)
        assert 1 <= made <= 5


def config_maps(server: CountingApiServer) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in server.store.list("ConfigMap", KEY.namespace, {})}


def data_of(found: dict[str, Object]) -> dict[str, Object]:
    return {name: each["data"] for name, each in found.items()}


async def test_changed_and_deleted_config_maps_are_restored() -> None:
    async with operating() as operator:
        await operator.reconcile()
        run_pod(operator.server)
        await operator.list_all()
        for _ in range(2):
            await operator.reconcile()
        before = config_maps(operator.server)
        assert len(before) == 3
        for found in before.values():
            operator.delete(found)
        await operator.reconcile()
        restored = config_maps(operator.server)
        assert data_of(restored) == data_of(before)
        for found in restored.values():
            if "immutable" not in found:
                operator.server.store.apply(found | {"data": dict.fromkeys(found["data"], "changed")})
        await operator.list_all()
        await operator.reconcile()
        assert data_of(config_maps(operator.server)) == data_of(before)
        assert await operator.reconcile() == []


async def test_a_deleted_pod_monitor_is_restored_after_the_next_list_and_costs_no_request_otherwise() -> None:
    async with operating(pod_monitor=PodMonitorSettings()) as operator:
        lists = partial(_list, operator.client, "")
        polling = Polling(operator.cache, ("PodMonitor",), lists, operator.client.serves, lambda _: None)
        await polling.list("PodMonitor")
        await operator.reconcile()
        for _ in range(20):
            assert await operator.reconcile() == []
        (before,) = operator.server.store.list("PodMonitor", KEY.namespace, {})
        operator.delete(before)
        await operator.reconcile()
        (after,) = operator.server.store.list("PodMonitor", KEY.namespace, {})
        assert after["spec"] == before["spec"]


async def test_the_next_pass_sees_the_writes_of_the_pass_before() -> None:
    async with operating() as operator:
        await operator.reconcile()
        second = await operator.reconcile(after=5.0)
        assert [each for each in second if not each.endswith("/status")] == []
        assert await operator.reconcile(after=5.0) == []


async def test_a_child_changed_by_another_writer_is_restored() -> None:
    async with operating() as operator:
        await operator.reconcile()
        service = operator.server.store.get("Service", KEY.namespace, KEY.name) or {}
        operator.server.store.apply(service | {"spec": service["spec"] | {"type": "NodePort"}})
        await operator.list_all()
        assert f"PATCH /api/v1/namespaces/ns/services/{KEY.name}" in await operator.reconcile()
        restored = operator.server.store.get("Service", KEY.namespace, KEY.name) or {}
        assert restored["spec"]["type"] == "ClusterIP"


async def changed_deployment(operator: Operator, **spec: int) -> Object:
    """The manifest of the Deployment that another writer has changed, unseen by any watch."""
    await operator.reconcile()
    live = operator.server.store.get("Deployment", KEY.namespace, KEY.name) or {}
    operator.server.store.apply(live | {"spec": live["spec"] | spec})
    metadata = {name: live["metadata"][name] for name in ("name", "namespace", "ownerReferences", "labels")}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": 3}}


async def test_a_count_that_another_writer_has_changed_since_is_not_overwritten() -> None:
    async with operating() as operator:
        made = await changed_deployment(operator, replicas=7)
        with pytest.raises(ClusterError, match="409"):
            await operator.client.apply(made, owner=operator.server.store.get(contract.KIND, "ns", "chat"))
        seen = await operator.client.get("Deployment", "ns", "chat") or {}
        assert seen["spec"]["replicas"] == 7  # the next pass decides by it


async def test_another_change_in_between_does_not_stop_a_write() -> None:
    async with operating() as operator:
        made = await changed_deployment(operator, paused=1)
        await operator.client.apply(made, owner=operator.server.store.get(contract.KIND, "ns", "chat"))
        assert (operator.server.store.get("Deployment", "ns", "chat") or {})["spec"]["replicas"] == 3


async def test_an_object_of_another_owner_is_found_although_no_watch_covers_it() -> None:
    async with operating() as operator:
        metadata = {"name": KEY.name, "namespace": KEY.namespace}
        operator.server.store.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {}})
        with pytest.raises(ForeignObject, match="Service ns/chat exists"):
            await operator.client.apply(
                {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {}},
                owner=operator.server.store.get(contract.KIND, "ns", "chat"),
            )


async def test_a_pod_that_has_changed_since_is_not_deleted() -> None:
    async with operating() as operator:
        await operator.reconcile()
        run_pod(operator.server)
        await operator.list_all()
        operator.server.store.set_status("Pod", "ns", "a", {"phase": "Running"})
        with pytest.raises(ClusterError, match="409"):
            await operator.client.delete("Pod", "ns", "a")
        await operator.list_all()
        await operator.client.delete("Pod", "ns", "a")
        assert await operator.client.get("Pod", "ns", "a") is None

"""Rows of the acceptance tables that need pods, on a real API server: the tests write what controllers and kubelets would.

The engines are servers of the test at addresses of the loopback network, on the admin port.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from aiohttp import web

from sluice import contract
from sluice_operator.cluster.client import Object
from sluice_operator.cluster.kinds import path
from sluice_operator.engines.client import HttpScraper
from sluice_operator.reconcile.children.admin_token import derive
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.render import names
from tests.kube.api_server import ApiServer
from tests.kube.specs import BASE
from tests.kube.world import World, in_worlds
from tests.operator.fake_cluster import KEY_OF_OPERATOR, exposition

ONE: Object = BASE | {"scaling": {"minReplicas": 1, "maxReplicas": 1}}
TIMES = {"lastTransitionTime": "2026-11-21T08:00:10Z"}
STARTED = {"state": {"running": {"startedAt": "2026-11-21T08:00:03Z"}}, "ready": True}
MISSING = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "engine:missing: not found"}}, "ready": False}


async def owned_by_deployment(world: World, revision: str) -> Object:
    """The Deployment controller makes the ReplicaSet of the newest template."""
    live = await world.child("Deployment", "chat")
    labels = names.labels("chat") | {"pod-template-hash": revision}
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat", "uid": live["metadata"]["uid"]}
    template = {"metadata": {"labels": labels}, "spec": live["spec"]["template"]["spec"]}
    metadata = {"name": f"chat-{revision}", "labels": labels, "ownerReferences": [owner | {"controller": True}]}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return await world.send("POST", path("ReplicaSet", world.namespace), {"metadata": metadata, "spec": spec})


async def run(world: World, owner: Object, name: str, address: str, container: Object = STARTED) -> Object:
    """The ReplicaSet controller, the scheduler and the kubelet make a pod, or change it; ready if its container is."""
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}
    reference |= {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    metadata = {"name": name, "labels": owner["metadata"]["labels"], "ownerReferences": [reference]}
    spec = owner["spec"]["template"]["spec"] | {"nodeName": "n"}
    pods = path("Pod", world.namespace)
    made = world.server.get(f"{pods}/{name}")
    made = made or await world.send("POST", pods, {"metadata": metadata, "spec": spec})
    ready = str(container["ready"])
    image = {"image": spec["containers"][0]["image"], "imageID": "", "restartCount": 0}
    status = {
        "phase": "Running" if container["ready"] else "Pending",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": "2026-11-21T08:00:01Z",
        "conditions": [{"type": kind, "status": ready, **TIMES} for kind in ("Ready", "ContainersReady")]
        + [{"type": "PodScheduled", "status": "True", **TIMES}],
        "containerStatuses": [{"name": names.CONTAINER, **image, **container}],
    }
    return await world.send("PUT", f"{pods}/{name}/status", made | {"status": status})


async def look(world: World, operator: Reconciler, counts: tuple[int, int, int], passes: int = 2) -> None:
    """Passes, each followed by the Deployment controller, whose status has these counts."""
    for _ in range(passes):
        await world.settle(operator, 1)
        await control(world, *counts)
    await world.settle(operator, 1)


async def control(world: World, replicas: int, updated: int, ready: int) -> None:
    """The Deployment controller writes its status."""
    live = await world.child("Deployment", "chat")
    counts = {"replicas": replicas, "updatedReplicas": updated, "readyReplicas": ready}
    status = counts | {"observedGeneration": live["metadata"]["generation"]}
    await world.send("PUT", path("Deployment", world.namespace, "chat") + "/status", live | {"status": status})


def address_of(number: int) -> str:
    """An address of this process alone."""
    return f"127.{77 + os.getpid() % 100}.{os.getpid() // 100 % 250}.{number}"


async def conditions(world: World, *kinds: str) -> dict[str, tuple[str, str]]:
    """Status and reason of these conditions."""
    found = {kind: await world.condition(kind) for kind in kinds}
    return {kind: (entry["status"], entry["reason"]) for kind, entry in found.items()}


def test_row_an_image_that_is_missing_stalls_the_rollout_and_the_old_pods_serve_on(crd: ApiServer) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        await world.create(ONE)
        operator = await world.settle()
        good = await run(world, await owned_by_deployment(world, "good"), "good-1", address_of(1))
        await look(world, operator, (1, 1, 1))
        assert await conditions(world, "Ready", "Available") == {
            "Ready": ("True", "Serving"),
            "Available": ("True", "ReplicasReady"),
        }
        await world.replace(ONE | {"engine": {"image": "engine:missing"}})
        await world.settle(operator, 2)
        await run(world, await owned_by_deployment(world, "bad"), "bad-1", address_of(2), MISSING)
        await look(world, operator, (2, 1, 1))
        found = await conditions(world, "Ready", "Available", "Progressing")
        assert (found["Ready"], found["Progressing"]) == (("False", "RolloutStalled"), ("False", "RolloutStalled"))
        assert found["Available"][0] == "True"
        message = (await world.condition("Ready"))["message"]
        assert "engine:missing" in message and "apply the earlier spec again" in message
        live = await world.child("Deployment", "chat")
        assert live["spec"]["replicas"] == 1 and live["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
        assert (await world.child("Pod", "good-1"))["metadata"] == good["metadata"]
        await world.replace(ONE)
        await world.settle(operator, 2)
        await world.send("DELETE", path("Pod", world.namespace, "bad-1") + "?gracePeriodSeconds=0")
        await look(world, operator, (1, 1, 1))
        assert (await world.condition("Ready"))["reason"] == "Serving"
        assert (await world.child("Pod", "good-1"))["metadata"]["uid"] == good["metadata"]["uid"]

    in_worlds(crd, story)


@dataclass
class Engine:
    """An engine's admin port: what it answers, and what it was sent."""

    answer: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None  # None: good metrics
    metrics: str = field(default_factory=exposition)
    reads: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a read of the metrics, or take limits."""
        token = request.headers.get("Authorization", "")
        if request.method == "PATCH":
            self.writes.append(token)
            return web.json_response({})
        self.reads.append(token)
        return web.Response(text=self.metrics) if self.answer is None else await self.answer(request)


@asynccontextmanager
async def engines(count: int) -> AsyncIterator[list[Engine]]:
    """Engines at the first addresses of this process."""
    found, runners = [Engine() for _ in range(count)], []
    try:
        for number, engine in enumerate(found, 1):
            application = web.Application()
            application.router.add_route("*", "/{path:.*}", engine.handle)
            runners.append(web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True))
            await runners[-1].setup()
            await web.TCPSite(runners[-1], address_of(number), contract.ADMIN_PORT).start()
        yield found
    finally:
        for runner in runners:
            await runner.cleanup()


def over_http(world: World, scraper: HttpScraper, **changes: Any) -> Reconciler:
    """A new operator process that calls the pods."""
    operator = world.operator()
    operator.context = replace(operator.context, scraper=scraper, **changes)
    return operator


async def served(world: World, scraper: HttpScraper, most: int = 4) -> Reconciler:
    """An operator of a fleet of two pods that serve, and of at most so many."""
    await world.create(BASE | {"scaling": {"minReplicas": 2, "maxReplicas": most}})
    operator = await world.settle(over_http(world, scraper), 2)
    owner = await owned_by_deployment(world, "v1")
    for number in (1, 2):
        await run(world, owner, f"chat-{number}", address_of(number))
    await look(world, operator, (2, 2, 2))
    return operator


async def silent(request: web.Request) -> web.StreamResponse:
    """No answer within the operator's deadline."""
    await asyncio.Event().wait()
    raise AssertionError


def answering(text: str, status: int = 200) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The same answer to each read."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text=text, status=status)

    return answer


async def dripping(request: web.Request) -> web.StreamResponse:
    """Good metrics, a byte now and then: each soon after the one before, and the last one after the operator's deadline."""
    response = web.StreamResponse()
    await response.prepare(request)
    for byte in exposition().encode():
        await response.write(bytes([byte]))
        await asyncio.sleep(0.1)
    return response


FAULTS: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
    "missing": answering("no metrics here", 503),
    "no answer": silent,
    "slow": dripping,
    "not a number": answering(exposition(requests_running=float("nan"))),
    "infinite": answering(exposition(requests_running=float("inf"))),
    "negative": answering(exposition(requests_waiting=-3.0)),
    "absurd": answering(exposition(kv_occupancy_ratio=1e300)),
    "garbage": answering("<html>" * 1000),
    "without an end": answering("# a comment\n" * 1_000_000),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_row_metrics_that_are_missing_stale_or_lying_hold_both_dials_until_they_are_right(
    crd: ApiServer, fault: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        async with engines(2) as found, HttpScraper(timeout=0.5) as scraper:
            operator = await served(world, scraper)
            assert (await conditions(world, "MetricsAvailable"))["MetricsAvailable"][0] == "True"
            for engine in found:
                engine.answer = fault
                engine.writes.clear()
            await world.replace(BASE | {"scaling": {"minReplicas": 1, "maxReplicas": 4}})
            await world.settle(operator, 12)
            assert (await world.child("Deployment", "chat"))["spec"]["replicas"] == 2
            assert (await conditions(world, "MetricsAvailable"))["MetricsAvailable"][0] == "False"
            assert [engine.writes for engine in found] == [[], []]
            for engine in found:
                engine.answer = None
            await world.settle(operator, 12)
            assert (await conditions(world, "MetricsAvailable"))["MetricsAvailable"][0] == "True"
            assert (await world.child("Deployment", "chat"))["spec"]["replicas"] == 1

    in_worlds(crd, story)


def test_each_pod_is_sent_the_token_of_the_secret_that_it_mounts_while_a_new_key_is_rolled_out(crd: ApiServer) -> None:
    async def story(make: Callable[[], World]) -> None:
        world, new = make(), b"the key that replaces the other one"
        async with engines(3) as found, HttpScraper(timeout=0.5) as scraper:
            await served(world, scraper, most=2)
            uid = (await world.child(contract.KIND, "chat"))["metadata"]["uid"]
            tokens = {key: f"Bearer {derive(key, uid)}" for key in (KEY_OF_OPERATOR, new)}
            assert {token for engine in found for token in engine.writes} == {tokens[KEY_OF_OPERATOR]}
            operator = over_http(world, scraper, token_key=new, old_keys=(KEY_OF_OPERATOR,))
            await world.settle(operator, 1)
            await run(world, await owned_by_deployment(world, "v2"), "chat-3", address_of(3))
            for engine in found:
                engine.writes.clear()
            await look(world, operator, (3, 1, 3), 3)
            old, also_old, newest = (set(engine.writes) for engine in found)
            assert old == also_old == {tokens[KEY_OF_OPERATOR]} and newest == {tokens[new]}

    in_worlds(crd, story)


def test_row_a_lost_node_is_replaced_and_its_return_leads_to_no_more_than_the_maximum(crd: ApiServer) -> None:
    async def story(make: Callable[[], World]) -> None:
        world = make()
        async with engines(3) as found, HttpScraper(timeout=0.5) as scraper:
            operator = await served(world, scraper, most=2)
            lost, owner = await world.child("Pod", "chat-1"), await world.child("ReplicaSet", "chat-v1")
            found[0].answer = silent
            status = lost["status"] | {"conditions": [{"type": "Ready", "status": "False", **TIMES}]}
            where = path("Pod", world.namespace, "chat-1")
            await world.send("PUT", f"{where}/status", lost | {"status": status})
            await world.send("DELETE", where)  # by the node controller; no kubelet carries it out
            await look(world, operator, (1, 1, 1))
            await run(world, owner, "chat-3", address_of(3))
            await look(world, operator, (2, 2, 2), 6)
            assert (await world.child("Deployment", "chat"))["spec"]["replicas"] == 2
            assert (await conditions(world, "Ready"))["Ready"] == ("True", "Serving")
            calls = len(found[0].reads)
            await look(world, operator, (2, 2, 2), 6)
            assert len(found[0].reads) - calls <= 2 and found[2].reads
            found[0].answer = None  # the node returns: its pod is ready until the kubelet has carried out the deletion
            live = await world.child("Pod", "chat-1")
            await world.send("PUT", f"{where}/status", live | {"status": lost["status"]})
            await look(world, operator, (2, 2, 2), 6)
            assert (await world.child("Deployment", "chat"))["spec"]["replicas"] == 2
            await world.send("DELETE", f"{where}?gracePeriodSeconds=0")
            await look(world, operator, (2, 2, 2), 3)
            assert (await world.child("Deployment", "chat"))["spec"]["replicas"] == 2
            assert {pod["metadata"]["name"] for pod in await world.reader.list("Pod", world.namespace, {})} == {
                "chat-2",
                "chat-3",
            }

    in_worlds(crd, story)

"""Forty resources whose pods are silent do not delay the pass over a healthy one: real calls, real workers, the
operator's own bounds."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sluice import contract
from sluice_operator import render
from sluice_operator.api import parse
from sluice_operator.cluster.client import Endpoint, Key, Object
from sluice_operator.engines.client import HttpScraper
from sluice_operator.reconcile.children.admin_token import make_key
from sluice_operator.reconcile.context import Context
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.runtime.workqueue import Workers
from sluice_operator.settings import Settings
from tests.operator.fake_cluster import FakeCluster, exposition, manifest, pod

SILENT = 40
PODS_EACH = 6
HEALTHY = Key("ns", "healthy")


@dataclass
class Engines:
    """Real TCP servers: one answers, one accepts and stays silent."""

    silent_port: int = 0
    healthy_port: int = 0
    accepted: int = 0
    all_called: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def engines() -> AsyncIterator[Engines]:
    found, gate = Engines(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.accepted += 1
        if found.accepted == SILENT * PODS_EACH:
            found.all_called.set()
        await gate.wait()
        writer.close()

    async def healthy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        text = exposition().encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(text) + text)
        await writer.drain()
        writer.close()

    async with (
        await asyncio.start_server(silent, "127.0.0.1", 0, backlog=1024) as one,
        await asyncio.start_server(healthy, "127.0.0.1", 0) as other,
    ):
        found.silent_port = one.sockets[0].getsockname()[1]
        found.healthy_port = other.sockets[0].getsockname()[1]
        yield found
        gate.set()


@dataclass
class ManyResources(FakeCluster):
    """`FakeCluster` for several resources, each with pods of its own."""

    fleets: dict[str, list[Object]] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)

    async def list(self, kind: str, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        name = labels.get(contract.LABEL_INSTANCE, "")
        if kind == "ReplicaSet":
            deployment = self.store.get("Deployment", namespace, name) or {}
            owner = {"kind": "Deployment", "uid": deployment["metadata"]["uid"], "controller": True}
            return [{"metadata": {"uid": "set-v1", "ownerReferences": [owner]}}]
        return self.fleets[name] if kind == "Pod" else await super().list(kind, namespace, labels)

    async def write_status(self, resource: Object, status: Object) -> None:
        self.store.set_status(contract.KIND, resource["metadata"]["namespace"], resource["metadata"]["name"], status)

    def endpoint(self, pod: Object) -> Endpoint | None:
        name = pod["metadata"]["name"]
        return Endpoint(name, "127.0.0.1", self.ports[name])

    def add(self, key: Key, port: int, count: int) -> None:
        resource = manifest()
        resource["metadata"]["name"] = key.name
        owner = self.store.apply(resource)
        *_, deployment = render.children(
            parse(resource, strict=False), defaults=render.PodDefaults("engine:1"), replicas=count, token="t"
        )
        self.store.apply(deployment, owner=owner)
        self.fleets[key.name] = [pod(f"{key.name}-{number}") for number in range(count)]
        self.ports |= {f"{key.name}-{number}": port for number in range(count)}


async def test_forty_resources_with_silent_pods_do_not_delay_a_healthy_one() -> None:
    settings = Settings(engine_image="engine:1")
    async with engines() as found, HttpScraper(600.0, settings.scrape_concurrency) as scraper:
        cluster, ended = ManyResources(), asyncio.Event()
        reconciler, done = Reconciler(Context(cluster, scraper, settings, make_key())), []
        silent = [Key("ns", f"silent{number}") for number in range(SILENT)]
        for key in silent:
            cluster.add(key, found.silent_port, PODS_EACH)
        cluster.add(HEALTHY, found.healthy_port, 1)

        async def one(key: Key) -> float:
            wait = await reconciler.reconcile(key)
            done.append(key)
            if key == HEALTHY:
                ended.set()
            return wait

        workers = Workers(one, limit=settings.workers)
        try:
            for key in silent:
                workers.wake(key)
            async with asyncio.timeout(60):
                await found.all_called.wait()
                workers.wake(HEALTHY)  # last, while every silent pod is being called
                await ended.wait()
        finally:
            await workers.close()
        assert done == [HEALTHY]
        assert reconciler.states[HEALTHY].observation.samples

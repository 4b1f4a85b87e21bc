"""Operator and gateway together: a canary under load, from the edit of the spec to its end, by the objects they share.

Kubernetes' part is played here: pods of Deployments, and the slices of Services with the labels of these.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
from aiohttp import web

from sluice import contract
from sluice_gateway.cluster.directory import Directory
from sluice_gateway.replicas.backend import Backend
from sluice_gateway.server import Gateway, GatewayOptions
from sluice_operator.autoscaler.values import EngineSample
from sluice_operator.cluster.client import Endpoint
from sluice_operator.cluster.pod_status import phase_of
from sluice_operator.engines.exposition import parse
from sluice_operator.render import names
from tests.gateway.cluster.documents import Object, by_name, deployment, endpoint, slice_of
from tests.gateway.engines import CHAT, FakeEngine
from tests.operator.fake_cluster import KEY, Engines, exposition
from tests.operator.reconcile.test_canary import CANARY, World, spec
from tests.operator.two_deployments import BAD_IMAGE

BODY = {"model": KEY.name, "messages": [{"role": "user", "content": "a"}]}
REQUESTS = 60  # per pass of five seconds


async def fails(_: web.Request) -> web.StreamResponse:
    return web.json_response({"error": {"message": "broken"}}, status=500)


class ServingEngines(Engines):
    """One HTTP server per ready pod; its metrics count what it has answered."""

    def __init__(self, stack: AsyncExitStack, *, canary_fails: bool) -> None:
        super().__init__()
        self.stack, self.canary_fails = stack, canary_fails
        self.servers: dict[str, FakeEngine] = {}

    async def server(self, pod: str) -> FakeEngine:
        if pod not in self.servers:
            engine = self.servers[pod] = FakeEngine(f"{KEY.namespace}/{pod}")
            engine.answer = fails if self._is_failing(pod) else None
            await engine.start()
            self.stack.push_async_callback(engine.stop)
        return self.servers[pod]

    def _is_failing(self, pod: str) -> bool:
        return self.canary_fails and pod.startswith(CANARY)

    async def scrape(self, endpoint: Endpoint) -> EngineSample:
        count = float(len((await self.server(endpoint.pod)).seen))
        if self._is_failing(endpoint.pod):
            return parse(exposition(**{'requests_total{outcome="error"}': count}))
        series = {'requests_total{outcome="stop"}': count, 'slo_requests_total{result="met"}': count}
        return parse(exposition(**series))


class Stage:
    """The world of the operator, and a gateway that sees its Services' slices."""

    def __init__(self, world: World, engines: ServingEngines, directory: Directory) -> None:
        self.world, self.engines, self.directory = world, engines, directory
        self.gateway: Gateway
        self.statuses: Counter[int] = Counter()
        self.weights: list[int | None] = []

    def backends(self) -> list[Backend]:
        """Those of the directory, at the addresses of their servers."""
        pods = {engine.name: engine.backend for engine in self.engines.servers.values()}
        return [
            Backend(each.name, pods[each.name].host, pods[each.name].port, pods[each.name].admin_url, each.model)
            for each in self.directory.backends()
        ]

    async def run(self, passes: int) -> None:
        for _ in range(passes):
            await self.world.run(1)
            await self.world.cluster.get("Deployment", KEY.namespace, KEY.name)  # its controller acts
            await self._mirror()
            await self.gateway.scraper.scrape()
            await asyncio.gather(*(self._ask() for _ in range(REQUESTS)))
            self.weights.append(self.world.cluster.weight())

    async def _mirror(self) -> None:
        """The EndpointSlice controller: ready pods by selector, with the labels of their Service."""
        ready = [pod for pod in self.world.cluster.pods if phase_of(pod)[0] == "ready"]
        for pod in ready:
            await self.engines.server(pod["metadata"]["name"])
        slices = [_slice(names.headless_service(KEY.name), {}, ready)]
        service = self.world.cluster.of(CANARY, "Service")
        if service is not None:
            selector = service["spec"]["selector"].items()
            chosen = [pod for pod in ready if selector <= pod["metadata"]["labels"].items()]
            slices.append(_slice(CANARY, service["metadata"]["labels"], chosen))
        self.directory.set_slices("", by_name(*slices))

    async def _ask(self) -> None:
        async with aiohttp.ClientSession() as client, client.post(self.gateway.url + CHAT, json=BODY) as response:
            self.statuses[response.status] += 1
            await response.read()

    @property
    def failed(self) -> int:
        return sum(count for status, count in self.statuses.items() if status >= 400)


def _slice(service: str, labels: dict[str, str], pods: list[Object]) -> Object:
    made = slice_of(KEY.name, *(endpoint(pod["metadata"]["name"]) for pod in pods), namespace=KEY.namespace)
    made["metadata"]["name"] = f"{service}-x"
    made["metadata"]["labels"] |= labels | {"kubernetes.io/service-name": service}
    return made


@asynccontextmanager
async def stage(*, canary_fails: bool = False) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        engines, directory = ServingEngines(stack, canary_fails=canary_fails), Directory()
        directory.set_deployments("", by_name(deployment(KEY.name, namespace=KEY.namespace)))
        found = Stage(World(), engines, directory)
        found.world.engines = engines  # type: ignore[assignment]  # they count real requests
        found.world.restart()
        options = GatewayOptions(port=0)
        found.gateway = Gateway(found.backends, options, canaries=directory.canaries)
        await found.world.run(1)
        await found.world.cluster.get("Deployment", KEY.namespace, KEY.name)
        await found._mirror()
        await stack.enter_async_context(found.gateway)
        await found.run(2)
        yield found


async def test_a_good_change_is_promoted_and_no_request_fails() -> None:
    async with stage() as found:
        found.world.cluster.edit(**spec("engine:2"))
        await found.run(14)
        assert found.world.phase == "Promoted"
        assert list(dict.fromkeys(found.weights)) == [None, 0, 25, 50]
        of_canary = sum(len(each.seen) for pod, each in found.engines.servers.items() if pod.startswith(CANARY))
        assert of_canary >= 2 * 20
        assert (found.failed, found.world.cluster.image()) == (0, "engine:2")


async def test_a_bad_image_is_rolled_back_and_no_request_fails() -> None:
    async with stage() as found:
        found.world.cluster.edit(**spec(BAD_IMAGE))
        await found.run(16)
        assert (found.world.phase, found.world.cluster.status["canary"]["reason"]) == ("RolledBack", "ImagePullFailed")
        assert set(found.weights) == {None, 0}
        assert (found.failed, found.world.cluster.image()) == (0, "engine:1")


async def test_a_canary_that_fails_requests_is_rolled_back_within_two_passes_of_its_weight() -> None:
    async with stage(canary_fails=True) as found:
        found.world.cluster.edit(**spec("engine:2"))
        await found.run(8)
        assert (found.world.phase, found.world.cluster.status["canary"]["reason"]) == ("RolledBack", "ErrorRate")
        assert 20 <= found.failed <= 4 * REQUESTS * 0.25 + 30
        assert found.weights.count(25) <= 4
        before = found.failed
        await found.run(3)
        assert (found.failed, found.world.cluster.weight()) == (before, None)
        assert contract.ANNOTATION_SHARED not in found.world.cluster.deployment["metadata"]["annotations"]

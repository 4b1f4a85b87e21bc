"""A request that a gateway sends to one replica after another arrives once, where its first attempt is."""

import asyncio

import aiohttp
from aiohttp import web

from sluice import contract
from sluice_gateway.replicas.backend import Backend
from sluice_gateway.server import Gateway, GatewayOptions
from tests.engine.server.transport.conftest import GOOD
from tests.engine.serving import CHAT, Served


def test_a_request_rejected_by_another_replica_is_served_and_no_second_arrival(engine: Served) -> None:
    """The gateway retries: port 1 is closed, and the first replica is full."""

    async def full(request: web.Request) -> web.Response:
        await request.read()
        return web.json_response({}, status=503)

    async def asked() -> list[int]:
        app = web.Application()
        app.router.add_post(CHAT, full)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        headers = {} if engine.key is None else {"Authorization": f"Bearer {engine.key}"}  # the gateway forwards it
        ports = (1, runner.addresses[0][1], engine.port)
        backends = [Backend(f"r{port}", "127.0.0.1", port) for port in ports]
        try:
            async with Gateway(lambda: backends, GatewayOptions(port=0)) as gateway, aiohttp.ClientSession() as client:
                found = []
                for _ in ports:
                    async with client.post(gateway.url + CHAT, json=GOOD, headers=headers) as response:
                        found.append(response.status)
                return found
        finally:
            await runner.cleanup()

    arrived, done = engine.metric(contract.REQUESTS_ARRIVED), engine.metric(contract.REQUESTS, outcome="length")
    shadowed = engine.metric(contract.SHADOW_REQUESTS)
    assert asyncio.run(asked()) == [200, 200, 200]
    assert engine.metric(contract.REQUESTS, outcome="length") == done + 3
    assert engine.metric(contract.REQUESTS_ARRIVED) == arrived + 1  # only the one with its first attempt here
    assert engine.metric(contract.SHADOW_REQUESTS) == shadowed + 1

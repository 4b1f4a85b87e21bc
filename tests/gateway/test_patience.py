"""A request at a silent replica goes to another one, or waits as long as a busy replica may take."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

from sluice_gateway.forwarding.patience import ALONE_SECONDS, patience
from sluice_gateway.replicas.scraper import Scraper
from sluice_gateway.replicas.state import SILENT
from sluice_gateway.server import Gateway
from tests.gateway.engines import FakeEngine, gateway_over
from tests.gateway.test_fleet import ask, chat, metric


class Stopped:
    """An answer that comes once the replica is resumed."""

    def __init__(self) -> None:
        self.arrived, self.resumed = asyncio.Event(), asyncio.Event()

    async def __call__(self, _: web.Request) -> web.Response:
        """Answer as r0."""
        self.arrived.set()
        await self.resumed.wait()
        return web.json_response({"from": "r0"})


@contextlib.asynccontextmanager
async def impatient(gateway: Gateway) -> AsyncIterator[Scraper]:
    """A scraper for which a replica is silent at once."""
    async with aiohttp.ClientSession() as session:
        yield Scraper(session, gateway.fleet, silent_seconds=0.05)


async def test_the_only_replica_keeps_the_requests_that_it_holds_while_it_is_silent() -> None:
    stopped = Stopped()
    engine = FakeEngine("r0", answer=stopped)
    async with gateway_over(engine, admin_port=0) as gateway, impatient(gateway) as scraper:
        first = asyncio.create_task(ask(gateway, chat("a")))
        await stopped.arrived.wait()
        engine.silent = asyncio.Event()
        await scraper.scrape()
        assert await metric(gateway, 'sluice_gateway_replica_faults_total{kind="silent"} 1.0')
        engine.silent.set()
        stopped.resumed.set()
        assert (await first)[1] == {"from": "r0"}


async def test_a_replica_that_comes_later_gets_the_requests_of_a_silent_one() -> None:
    stopped, asleep = Stopped(), asyncio.Event()
    engines = [FakeEngine("r0", answer=stopped), FakeEngine("r1")]
    async with gateway_over(*engines, policy="RoundRobin") as gateway, impatient(gateway) as scraper:
        first = asyncio.create_task(ask(gateway, chat("a")))
        await stopped.arrived.wait()
        for engine, state in reversed([*zip(engines, gateway.fleet.states(), strict=True)]):
            engine.silent = asleep
            gateway.fleet.out(state, SILENT)
        await scraper.scrape()
        assert not first.done()
        engines[1].silent = None
        await scraper.scrape()
        assert (await first)[1] == {"from": "r1"}
        asleep.set()
        stopped.resumed.set()


async def test_the_wait_ends_at_once_with_another_replica_late_without_and_never_once_it_answers() -> None:
    others = False
    loop = asyncio.get_running_loop()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(None) as limit:
            told = patience(limit, lambda: others)
            began = loop.time()
            told(True)
            ends = limit.when()
            assert ends is not None and began + ALONE_SECONDS <= ends <= loop.time() + ALONE_SECONDS
            told(True)
            assert limit.when() == ends
            told(False)
            assert limit.when() is None
            others = True
            told(True)
            assert limit.when() == 0.0
            await asyncio.Event().wait()
    assert limit.expired()
    told(True)
    told(False)

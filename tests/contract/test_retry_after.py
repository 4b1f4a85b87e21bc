"""From the operator's forecast to the client's Retry-After: its real scraper, and both real ports of an engine."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from sluice import contract
from sluice.httpapi.connection import HttpServer
from sluice.httpapi.connection_limits import ConnectionLimits
from sluice_engine import messages
from sluice_engine.server.api import admin, data_routes
from sluice_engine.server.context import Serving
from sluice_engine.server.lifecycle import LOADING_RETRY_SECONDS, Lifecycle
from sluice_engine.server.transport.router import Router, Routes
from sluice_engine.server.transport.sockets import bind
from sluice_engine.text import load_text_model
from sluice_operator.cluster.client import Endpoint
from sluice_operator.engines.client import HttpScraper, ScrapeError
from tests.contract.test_operator_engine import BOUNDS
from tests.engine.server.api.generation.test_handlers import OPTIONS, FakeEngineClient, without_keys
from tests.engine.server.test_metrics import Story
from tests.engine.server.transport.test_connection_limits import until

QUESTION = {"model": "m", "prompt": "hello"}


@dataclass
class Engine:
    """An engine that loads: the test is what computes, and moves its clock."""

    serving: Serving
    client: FakeEngineClient
    url: str = ""
    port: int = 0
    now: float = 1000.0

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("a", "127.0.0.1", self.port)

    def load(self, model: Path) -> None:
        self.serving.text_loaded(load_text_model(model))
        self.client.say(
            messages.Ready(
                dtype="float32", device="cpu", block_size=16, num_blocks=10, max_model_length=64, vocab_size=128,
                paced=False, load_seconds={},
            )
        )  # fmt: skip
        self.serving.check_complete()

    async def ask(self) -> tuple[int, float]:
        """The answer's status, and the seconds that the client is told to wait."""
        async with (
            aiohttp.ClientSession() as session,
            session.post(self.url + contract.PATH_COMPLETIONS, json=QUESTION) as answer,
        ):
            assert int(answer.headers[contract.HEADER_RETRY_AFTER]) >= float(answer.headers["retry-after-ms"]) / 1000
            return answer.status, float(answer.headers["retry-after-ms"]) / 1000

    async def refuse(self, reason: messages.RejectReason, own: float) -> tuple[int, float]:
        """The same of a request that the engine takes in and refuses, where it would say `own` by itself."""
        before = len(self.client.sent)
        asked = asyncio.create_task(self.ask())
        await until(lambda: len(self.client.sent) > before)
        submitted = self.client.sent[before]
        self.client.say(messages.Rejected(submitted.request_id, reason, own, "no"))
        return await asked


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    story = Story()
    client = FakeEngineClient(story.metrics)
    found: list[Engine] = []
    lifecycle = Lifecycle(0.0, lambda: None, clock=lambda: found[0].now)
    found.append(Engine(Serving(OPTIONS, story.metrics, lifecycle, client), client))
    serving, runners = found[0].serving, []

    async def listen(routes: Routes) -> int:
        router = Router(serving, routes, loopback=True, access=without_keys(serving))
        runners.append(web.ServerRunner(HttpServer(router, ConnectionLimits(8))))
        await runners[-1].setup()
        listener = bind("127.0.0.1", 0, "--port")
        await web.SockSite(runners[-1], listener).start()
        return int(listener.getsockname()[1])

    found[0].url = f"http://127.0.0.1:{await listen(data_routes.routes())}"
    found[0].port = await listen(admin.routes(admin.AdminToken(None, loopback=True)))
    yield found[0]
    for runner in runners:
        await runner.cleanup()
    serving.threads.shutdown()


@pytest.fixture
async def scraper() -> AsyncIterator[HttpScraper]:
    async with HttpScraper(timeout=60.0) as scraper:
        yield scraper


async def test_a_loading_engine_rejects_with_the_operators_expected_load_time(
    engine: Engine, scraper: HttpScraper
) -> None:
    assert await engine.ask() == (503, LOADING_RETRY_SECONDS)
    await scraper.patch_limits(engine.endpoint, "token", None, 40.0)
    assert await engine.ask() == (503, 40.0)
    engine.now += 10.0
    assert await engine.ask() == (503, 30.0)
    engine.now += 25.0  # the operator is silent
    assert await engine.ask() == (503, LOADING_RETRY_SECONDS)


async def test_a_loading_engine_accepts_no_limits(engine: Engine, scraper: HttpScraper) -> None:
    with pytest.raises(ScrapeError, match="answered 503"):
        await scraper.patch_limits(engine.endpoint, "token", BOUNDS, 0.0)
    assert engine.client.sent == []


@pytest.mark.parametrize("reason", ["queue_full", "displaced", "slo_unreachable"])
async def test_a_full_engine_rejects_with_the_time_until_the_next_replica(
    engine: Engine, scraper: HttpScraper, tiny_model: Path, reason: messages.RejectReason
) -> None:
    engine.load(tiny_model)
    assert await engine.refuse(reason, 4.0) == (503, 4.0)
    await scraper.patch_limits(engine.endpoint, "token", None, 40.0)
    engine.now += 10.0
    status, wait = await engine.refuse(reason, 4.0)
    assert status == 503 and 30.0 <= wait <= 34.0
    await scraper.patch_limits(engine.endpoint, "token", None, 0.0)  # it serves, or nobody needs it any more
    assert await engine.refuse(reason, 4.0) == (503, 4.0)


async def test_a_draining_engine_rejects_with_an_immediate_retry(
    engine: Engine, scraper: HttpScraper, tiny_model: Path
) -> None:
    engine.load(tiny_model)
    await scraper.patch_limits(engine.endpoint, "token", None, 40.0)
    assert await engine.refuse("draining", 1.0) == (503, 1.0)


async def test_the_limits_say_when_a_replica_is_expected(engine: Engine, scraper: HttpScraper) -> None:
    await scraper.patch_limits(engine.endpoint, "token", None, 40.0)
    url = f"http://127.0.0.1:{engine.port}{contract.PATH_LIMITS}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert (await answer.json())["retry_after_seconds"] == 40.0

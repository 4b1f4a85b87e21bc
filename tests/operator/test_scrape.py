"""Talking to engines: every fault is one named error, nothing hangs, nothing grows."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from sluice import contract
from sluice_operator.decide.values import Bounds, EngineSample
from sluice_operator.health import Health
from sluice_operator.metrics import OperatorMetrics
from sluice_operator.scrape import MAX_BODY_BYTES, HttpScraper, ScrapeError, scrape_all
from sluice_operator.world import Endpoint
from tests.operator.books import exposition

BOUNDS = Bounds(1, 8, 10, 0.8, 0.05, 2.0, 15.0)


@asynccontextmanager
async def engine(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[Endpoint]:
    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)  # type: ignore[arg-type]
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield Endpoint("a", "127.0.0.1", port)
    finally:
        await runner.cleanup()


async def good(request: web.Request) -> web.Response:
    return web.Response(text=exposition(requests_running=3))


async def test_a_good_answer_is_a_sample() -> None:
    async with engine(good) as endpoint, HttpScraper(timeout=60.0) as scraper:
        assert (await scraper.scrape(endpoint)).running == 3


async def test_faults_are_named() -> None:
    async def loading(request: web.Request) -> web.Response:
        return web.Response(status=503, text="loading")

    async def huge(request: web.Request) -> web.Response:
        return web.Response(body=b"x" * (MAX_BODY_BYTES + 1))

    async def other(request: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def hang(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    async def elsewhere(request: web.Request) -> web.Response:
        raise web.HTTPFound("http://169.254.169.254/")

    for answer, words, seconds in (
        (loading, "answered 503", 60.0),
        (huge, "more than", 60.0),
        (other, "is missing", 60.0),
        (hang, "did not answer", 0.3),
        (elsewhere, "answered 302", 60.0),
    ):
        async with engine(answer) as endpoint, HttpScraper(timeout=seconds) as scraper:
            with pytest.raises(ScrapeError, match=words):
                await scraper.scrape(endpoint)


async def test_an_engine_that_is_not_there_does_not_hide_the_others() -> None:
    async with engine(good) as endpoint, HttpScraper(timeout=60.0) as scraper:
        answers = await scrape_all(scraper, [endpoint, Endpoint("gone", "127.0.0.1", 1)])
    assert isinstance(answers["a"], EngineSample)
    assert isinstance(answers["gone"], ScrapeError)


async def test_no_more_requests_at_once_than_allowed() -> None:
    running, most = 0, 0

    async def count(request: web.Request) -> web.Response:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return await good(request)

    async with engine(count) as endpoint, HttpScraper(timeout=60.0, concurrency=2) as scraper:
        await asyncio.gather(*(scraper.scrape(endpoint) for _ in range(10)))
    assert most <= 2


async def test_limits_are_patched_with_the_token() -> None:
    seen: list[tuple[str, str, str, object]] = []

    async def take(request: web.Request) -> web.Response:
        seen.append((request.method, request.path, request.headers["Authorization"], await request.json()))
        return web.json_response({})

    async with engine(take) as endpoint, HttpScraper(timeout=60.0) as scraper:
        await scraper.patch_limits(endpoint, "secret", BOUNDS, 12.5)
    method, path, authorization, body = seen[0]
    assert (method, path, authorization) == ("PATCH", contract.PATH_LIMITS, "Bearer secret")
    assert isinstance(body, dict) and body["max_concurrent"] == {"min": 1, "max": 8} and body["ttl_seconds"] == 15.0
    assert body["retry_after_seconds"] == 12.5


async def test_health_is_what_the_watchdog_says(unused_tcp_port: int) -> None:
    import aiohttp

    verdict = ""
    metrics = OperatorMetrics()
    metrics.decided("replicas", "Queue")
    health = Health(lambda: verdict, metrics)
    await health.start(unused_tcp_port)
    base = f"http://127.0.0.1:{unused_tcp_port}"
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{base}/healthz") as answer:
            assert answer.status == 200
        verdict = "the watcher has ended"
        async with session.get(f"{base}/healthz") as answer:
            assert (answer.status, await answer.text()) == (503, "the watcher has ended\n")
        async with session.get(f"{base}/metrics") as answer:
            text = await answer.text()
    await health.close()
    assert f'{contract.OPERATOR_DECISIONS}{{kind="replicas",reason="Queue"}} 1.0' in text
    for name in (contract.OPERATOR_RECONCILE_SECONDS, contract.OPERATOR_LEADER, contract.OPERATOR_WATCH_LAST_EVENT):
        assert name in text

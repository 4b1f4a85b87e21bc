"""Talking to engines: every fault is one named error, nothing hangs, nothing grows."""

import asyncio
import gzip
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest
from aiohttp import web

from sluice import contract
from sluice_operator.autoscaler.values import Bounds, EngineSample
from sluice_operator.cluster.client import Endpoint
from sluice_operator.engines.client import (
    MAX_BODY_BYTES,
    AnswerTooLarge,
    HttpScraper,
    NoAnswer,
    ScrapeError,
    scrape_all,
)
from sluice_operator.engines.text_format import MAX_LABELS, MAX_SERIES
from sluice_operator.metrics import OperatorMetrics
from sluice_operator.runtime.health import Health
from tests.operator.fake_cluster import exposition

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


async def test_reads_carry_the_token_of_reads_and_writes_the_admin_token() -> None:
    seen = []

    async def recording(request: web.Request) -> web.Response:
        seen.append((request.method, request.headers.get("Authorization")))
        return await good(request)

    async with engine(recording) as endpoint, HttpScraper(timeout=60.0) as scraper:
        asking = replace(endpoint, read_token="r34d")
        await scraper.scrape(endpoint)
        await scraper.scrape(asking)
        await scraper.patch_limits(asking, "s3cret", BOUNDS, 0.0)
    assert seen == [("GET", None), ("GET", "Bearer r34d"), ("PATCH", "Bearer s3cret")]
    assert "r34d" not in repr(asking)


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


async def test_an_answer_above_a_bound_is_refused_and_the_log_names_the_bound(caplog: pytest.LogCaptureFixture) -> None:
    labels = ",".join(f'l{number}="v"' for number in range(MAX_LABELS + 1))
    texts = {
        f"more than {MAX_BODY_BYTES} bytes": "#" * (MAX_BODY_BYTES + 1),
        f"more than {MAX_SERIES} series": f"{contract.KV_BLOCKS} 1\n" * (MAX_SERIES + 1),
        f"more than {MAX_LABELS} labels": f"{contract.REQUESTS_RUNNING}{{{labels}}} 1\n",
    }
    for words, text in texts.items():

        async def answer(request: web.Request, text: str = text) -> web.Response:
            return web.Response(text=text)

        caplog.clear()
        async with engine(answer) as endpoint, HttpScraper(timeout=60.0) as scraper:
            with pytest.raises(AnswerTooLarge, match=words):
                await scraper.scrape(endpoint)
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert words in caplog.text and "pod a" in caplog.text


async def test_a_compressed_answer_is_not_inflated() -> None:
    bomb = gzip.compress(b"#" * 64 * MAX_BODY_BYTES)
    assert len(bomb) < MAX_BODY_BYTES

    async def answer(request: web.Request) -> web.Response:
        assert request.headers["Accept-Encoding"] == "identity"
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    async with engine(answer) as endpoint, HttpScraper(timeout=60.0) as scraper:
        with pytest.raises(ScrapeError, match=r"(?!.*more than)pod a"):
            await scraper.scrape(endpoint)


async def test_an_answer_is_parsed_off_the_event_loop() -> None:
    gate, served = threading.Event(), asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        served.set()
        return await good(request)

    async with engine(answer) as endpoint, HttpScraper(timeout=60.0) as scraper:
        try:
            scraper._parser.submit(gate.wait)  # the parser's thread is busy
            first = asyncio.create_task(scraper.scrape(endpoint))
            await served.wait()
            with pytest.raises(ScrapeError, match="did not answer"):  # the loop goes on meanwhile
                await scraper.scrape(Endpoint("gone", "127.0.0.1", 1))
            await scraper._request("GET", endpoint, contract.PATH_METRICS)  # behind the first answer, and unparsed
            assert not first.done()
        finally:
            gate.set()
        assert (await first).running == 3


async def test_only_a_timeout_counts_as_no_answer() -> None:
    async def hang(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    async with engine(hang) as endpoint, HttpScraper(timeout=0.05) as scraper:
        with pytest.raises(NoAnswer, match=r"nothing within 0\.05 s"):
            await scraper.scrape(endpoint)
        with pytest.raises(ScrapeError) as refused:
            await scraper.scrape(Endpoint("gone", "127.0.0.1", 1))
    assert not isinstance(refused.value, NoAnswer)


async def test_the_wait_for_a_slot_is_within_the_deadline() -> None:
    gate = asyncio.Event()

    async def hang(request: web.Request) -> web.Response:
        await gate.wait()
        return web.Response()

    async with engine(hang) as endpoint, HttpScraper(timeout=0.2, concurrency=1) as scraper:
        async with asyncio.timeout(1.0):  # forty calls one after the other would take eight seconds
            answers = await scrape_all(scraper, [Endpoint(str(n), endpoint.host, endpoint.port) for n in range(40)])
        gate.set()
    assert all(isinstance(answer, NoAnswer) for answer in answers.values())


async def test_limits_are_not_sent_without_the_lease() -> None:
    asked = 0

    async def take(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.json_response({})

    async with engine(take) as endpoint, HttpScraper(timeout=60.0, lease=lambda: 0.0) as scraper:
        with pytest.raises(ScrapeError, match="no longer holds the Lease"):
            await scraper.patch_limits(endpoint, "secret", BOUNDS, 0.0)
    assert asked == 0


async def test_an_unreachable_engine_does_not_hide_the_others() -> None:
    async with engine(good) as endpoint, HttpScraper(timeout=60.0) as scraper:
        answers = await scrape_all(scraper, [endpoint, Endpoint("gone", "127.0.0.1", 1)])
    assert isinstance(answers["a"], EngineSample)
    assert isinstance(answers["gone"], ScrapeError)


async def test_no_more_requests_at_once_than_allowed() -> None:
    arrived = 0
    two_arrived, proceed = asyncio.Event(), asyncio.Event()

    async def hold(request: web.Request) -> web.Response:
        nonlocal arrived
        if request.query_string != "probe":
            arrived += 1
            if arrived == 2:
                two_arrived.set()
            await proceed.wait()
        return await good(request)

    async with (
        engine(hold) as endpoint,
        HttpScraper(timeout=60.0, concurrency=2) as scraper,
        aiohttp.ClientSession() as session,
    ):
        scrapes = [asyncio.create_task(scraper.scrape(endpoint)) for _ in range(10)]
        await two_arrived.wait()
        # A third scrape would have been sent before this request and have arrived before it is answered.
        async with session.get(f"http://{endpoint.host}:{endpoint.port}/metrics?probe") as response:
            await response.read()
        assert arrived == 2
        proceed.set()
        await asyncio.gather(*scrapes)
    assert arrived == 10


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


async def test_the_health_endpoint_reports_the_fault_of_the_watchdog(unused_tcp_port: int) -> None:
    import aiohttp

    fault = ""
    metrics = OperatorMetrics()
    metrics.decided("replicas", "Queue")
    health = Health(lambda: fault, metrics)
    await health.start(unused_tcp_port)
    base = f"http://127.0.0.1:{unused_tcp_port}"
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{base}/healthz") as answer:
            assert answer.status == 200
        fault = "the watcher has ended"
        async with session.get(f"{base}/healthz") as answer:
            assert (answer.status, await answer.text()) == (503, "the watcher has ended\n")
        async with session.get(f"{base}/metrics") as answer:
            text = await answer.text()
    await health.close()
    assert f'{contract.OPERATOR_DECISIONS}{{kind="replicas",reason="Queue"}} 1.0' in text
    for name in (contract.OPERATOR_RECONCILE_SECONDS, contract.OPERATOR_LEADER, contract.OPERATOR_WATCH_LAST_EVENT):
        assert name in text

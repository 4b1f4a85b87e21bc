"""The load client against a server that works, refuses, breaks off, or returns wrong data."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from sluice.bench import BenchError, Load, Prompt, Report, Result, run

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
PROMPTS = (Prompt("a", "answer to a"), Prompt("b", "answer to b"), Prompt("c"))


class Peer:
    """A server with scripted behaviour that counts requests and connections."""

    def __init__(self, *, refuse_first: int = 0, status: int = 503, retry_after_ms: str = "1") -> None:
        self.refuse_first = refuse_first
        self.status = status
        self.retry_after_ms = retry_after_ms
        self.bodies: list[dict[str, object]] = []
        self.connections: set[object] = set()
        self.now = 0
        self.most = 0
        self.tail = [{"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}, "[DONE]"]
        self.finish = "stop"
        self.words: Callable[[str], list[str]] = lambda asked: ["answer", " to", f" {asked}"]
        self.hang_up_after: int | None = None

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(body := await request.json())
        self.connections.add(request.transport)
        if len(self.bodies) <= self.refuse_first:
            return web.json_response(
                {"error": {"message": "full"}}, status=self.status, headers={"retry-after-ms": self.retry_after_ms}
            )
        self.now += 1
        self.most = max(self.most, self.now)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        events: list[object] = [{"choices": [{"index": 0, "delta": {"role": "assistant"}}]}]
        for word in self.words(body["messages"][0]["content"]):
            events.append({"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]})
        events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": self.finish}]})
        for number, event in enumerate([*events, *self.tail]):
            if number == self.hang_up_after and request.transport is not None:
                request.transport.abort()
                break
            data = event if isinstance(event, str) else json.dumps(event)
            await response.write(f"data: {data}\n\n".encode())
            await asyncio.sleep(0)
        self.now -= 1
        return response


@asynccontextmanager
async def serving(peer: Peer) -> AsyncIterator[str]:
    app = web.Application()

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "tiny"}]})

    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/chat/completions", peer.chat)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


async def reported(peer: Peer, prompts: tuple[Prompt, ...] = PROMPTS, *, requests: int = 6, retries: int = 2) -> Report:
    async with serving(peer) as url:
        return await run(Load(url=url, prompts=prompts, concurrency=2, requests=requests, retries=retries))


async def test_a_closed_loop_keeps_its_concurrency_and_reuses_connections() -> None:
    peer = Peer()
    report = await reported(peer, requests=12)
    assert (report.requests, report.failed, report.retries, report.model) == (12, 0, 0, "tiny")
    assert (report.input_tokens, report.output_tokens) == (84, 36)
    assert peer.most == 2
    assert len(peer.connections) <= 2
    assert report.ttft_ms.p50 is not None
    assert report.itl_ms.p99 is not None


async def test_it_asks_for_greedy_streams_with_usage() -> None:
    peer = Peer()
    await reported(peer, requests=1)
    body = peer.bodies[0]
    assert (body["model"], body["temperature"], body["stream"]) == ("tiny", 0.0, True)
    assert body["stream_options"] == {"include_usage": True}


async def test_an_open_loop_sends_at_its_arrival_times_and_does_not_wait_for_answers() -> None:
    peer = Peer()
    seen: list[Result] = []
    async with serving(peer) as url:
        load = Load(url=url + "v1/", prompts=PROMPTS, rate=2000.0, requests=20, seed=3)
        report = await run(load, seen.append)
    assert report.requests == len(seen) == 20
    assert sorted(result.arrival for result in seen) == pytest.approx(list(load.arrivals()))


async def test_a_rejection_followed_by_a_successful_retry_is_no_failure_and_counted_separately() -> None:
    report = await reported(Peer(refuse_first=2), requests=4)
    assert (report.failed, report.retries) == (0, 2)
    assert report.refused_then_healed in (1, 2)  # one request may have received both refusals
    assert report.broken_then_healed == 0


async def test_a_request_rejected_in_every_attempt_is_a_failure() -> None:
    peer = Peer(refuse_first=100)
    report = await reported(peer, requests=1)
    assert (report.failed, report.failures, len(peer.bodies)) == (1, {"refused": 1}, 3)
    assert "full" in report.first_failures[0]


async def test_a_4xx_error_is_not_retried() -> None:
    peer = Peer(refuse_first=100, status=400)
    report = await reported(peer, requests=1)
    assert (report.failures, len(peer.bodies)) == ({"status": 1}, 1)


async def test_a_5xx_error_is_retried_and_counted_as_broken() -> None:
    report = await reported(Peer(refuse_first=1, status=500), requests=1)
    assert (report.failed, report.broken_then_healed, report.refused_then_healed) == (0, 1, 0)


async def test_a_retry_after_of_more_than_two_minutes_ends_the_retries() -> None:
    peer = Peer(refuse_first=1, retry_after_ms="500000")
    assert (await reported(peer, requests=1)).failures == {"refused": 1}


async def test_a_stream_without_done_is_a_failure() -> None:
    peer = Peer()
    peer.tail = []
    assert (await reported(peer, requests=3)).failures == {"no_done": 3}


async def test_a_connection_cut_in_mid_stream_is_a_failure_and_not_retried() -> None:
    peer = Peer()
    peer.hang_up_after = 2
    report = await reported(peer, requests=1)
    assert (report.failures, report.retries) == ({"no_done": 1}, 0)


async def test_an_error_event_is_a_failure() -> None:
    peer = Peer()
    peer.tail = [{"error": {"message": "the engine died", "type": "server_error"}}]
    report = await reported(peer, requests=1)
    assert report.failures == {"stream_error": 1}
    assert "the engine died" in report.first_failures[0]


@pytest.mark.parametrize("tail", ["not json", '{"choices": 3}', "[]"])
async def test_an_event_that_is_no_chunk_is_a_failure(tail: str) -> None:
    peer = Peer()
    peer.tail = [tail]
    assert (await reported(peer, requests=1)).failures == {"malformed": 1}


async def test_an_unexpected_text_is_a_failure() -> None:
    peer = Peer()
    peer.words = lambda asked: ["something", " else"]
    report = await reported(peer, requests=3)
    assert report.failures == {"mismatch": 2}  # the third prompt has no expected output


async def test_a_text_cut_by_the_length_limit_must_be_the_beginning_of_the_expected_one() -> None:
    peer = Peer()
    peer.finish = "length"
    peer.words = lambda asked: ["answer", " to"]
    assert (await reported(peer, requests=3)).failed == 0


async def test_the_share_within_the_targets_counts_failures_as_missed() -> None:
    peer = Peer(refuse_first=1, status=400)
    async with serving(peer) as url:
        report = await run(Load(url=url, prompts=PROMPTS, concurrency=1, requests=4, ttft_target=60.0, itl_target=60.0))
    assert report.slo_met_ratio == 0.75


async def test_once_stopped_it_sends_nothing_more_and_waits_for_what_is_in_flight() -> None:
    peer, stop = Peer(), asyncio.Event()
    async with serving(peer) as url:
        report = await run(Load(url=url, prompts=PROMPTS, concurrency=2, duration=600.0), lambda _: stop.set(), stop)
        assert report.requests <= 3
        stop.set()
        report = await run(Load(url=url, prompts=PROMPTS, rate=1.0, duration=600.0), None, stop)
        assert report.requests == 0


async def test_an_unreachable_server_is_reported_in_a_sentence() -> None:
    with pytest.raises(BenchError, match="cannot be reached"):
        await run(Load(url="http://127.0.0.1:1", prompts=PROMPTS, concurrency=1, requests=1))


async def test_connection_errors_are_retried_and_then_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    from sluice.bench import retry

    monkeypatch.setattr(retry, "FIRST_DELAY", 0.001)
    load = Load(url="http://127.0.0.1:1", prompts=PROMPTS, model="tiny", concurrency=1, requests=1)
    report = await run(load)
    assert (report.failures, report.retries) == ({"connection": 1}, 2)


async def test_an_interrupt_abandons_what_is_in_flight_and_reports_what_finished() -> None:
    peer, interrupt, finished = Peer(), asyncio.Event(), list[Result]()

    def on_result(result: Result) -> None:
        finished.append(result)
        if len(finished) == 3:
            interrupt.set()

    async with serving(peer) as url:
        load = Load(url=url, prompts=PROMPTS, concurrency=2, requests=1000)
        report = await run(load, on_result, interrupt=interrupt)
    assert (report.requests, report.failed) == (len(finished), 0)
    assert 1 <= report.unfinished <= 2
    assert report.requests < 1000

"""Streams that go on elsewhere: any cut of any stream, and real engines that are killed."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import orjson
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from sluice.httpapi.errors import InternalError, Unavailable
from sluice_engine.server.api.anthropic.encoder import MessageEncoder
from sluice_engine.server.api.generation.sse import ChatFormat, Encoder, EventEncoder, Head
from sluice_engine.server.api.responses.encoder import ResponseEncoder
from sluice_engine.server.usage import Usage
from sluice_gateway.errors import ends_broken
from sluice_gateway.forwarding.resume import ResumableStream
from sluice_gateway.replicas.backend import Backend
from sluice_gateway.routing import Canary
from sluice_gateway.server import Gateway, GatewayOptions
from tests.engine.serving import Served, serving
from tests.gateway.engines import CHAT, FakeEngine, gateway_over
from tests.gateway.test_fleet import chat, metric

BODY = orjson.dumps({"model": "chat", "stream": True, "resume": True, "temperature": 0})
HEAD = Head("s", 7, "tiny")
PACE = "base=0.03,sequence=0.001"


def event(text: str) -> bytes:
    return (
        b"data: " + json.dumps({"id": "s", "created": 7, "choices": [{"delta": {"content": text}}]}).encode() + b"\n\n"
    )


def stream_of(groups: list[tuple[int, list[int]]], after: int = 0) -> bytes:
    """Groups of events, each with the token ids of its comment; those of the first `after` tokens are left out."""
    found, seen = b"", 0
    for count, ids in groups:
        seen += len(ids)
        if seen > after or not after:
            found += b"".join(event(f"{seen}.{number}") for number in range(count))
            found += b": tokens " + b",".join(str(each).encode() for each in ids) + b"\n\n"
    return found + b"data: [DONE]\n\n: tokens \n\n"


groups_drawn = st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 500), min_size=1, max_size=4)), min_size=1)


@given(groups_drawn.filter(lambda groups: groups[0][0] > 0), st.data())
def test_a_stream_cut_anywhere_goes_on_without_a_gap_or_a_repetition(
    groups: list[tuple[int, list[int]]], data: st.DataObject
) -> None:
    whole = stream_of(groups)
    expected = b"".join(block + b"\n\n" for block in whole.split(b"\n\n")[:-1] if not block.startswith(b": "))
    stream, shown, left = ResumableStream(BODY), b"", whole
    for _ in range(data.draw(st.integers(0, 4))):
        cut = data.draw(st.integers(0, len(left)))
        while left and cut > 0:
            size = data.draw(st.integers(1, cut))
            shown, left, cut = shown + stream.take(left[:size]), left[size:], cut - size
        assert expected.startswith(shown)
        if stream.complete:
            break
        again = orjson.loads(stream.next_body())["resume"]
        tokens = [] if again is True else again["tokens"]
        assert again is True or (again["id"], again["created"]) == ("s", 7)
        assert tokens == [each for _, ids in groups for each in ids][: len(tokens)]
        left = stream_of(groups, after=len(tokens))
    assert shown + stream.take(left) + stream.end() == expected or stream.complete


@given(st.binary(max_size=200), st.integers(1, 50))
def test_a_stream_that_says_no_tokens_is_passed_on_whole(content: bytes, size: int) -> None:
    stream = ResumableStream(BODY)
    parts = [content[start : start + size] for start in range(0, len(content), size)]
    shown = b"".join(stream.take(part) for part in parts) + stream.end()
    assert shown == content or b": tokens " in content


async def test_without_the_field_a_broken_stream_is_not_sent_again() -> None:
    async def breaks(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event("a") + b": tokens 5\n\n")
        assert request.transport is not None
        request.transport.abort()
        return response

    engines = [FakeEngine(f"r{n}", answer=breaks) for n in range(3)]
    async with gateway_over(*engines) as gateway, aiohttp.ClientSession() as client:
        for field, sent in (({}, 1), ({"resume": True}, 1 + 3)):
            async with client.post(gateway.url + CHAT, json=chat("a") | {"stream": True} | field) as response:
                assert "upstream_lost" in await response.text()
            assert sum(len(engine.seen) for engine in engines) == sent


async def test_once_its_answer_has_begun_a_request_takes_memory_only_if_it_may_be_sent_again() -> None:
    begun, end = asyncio.Semaphore(0), asyncio.Event()

    async def holds(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(event("a") + b": tokens 5\n\n")
        begun.release()
        await end.wait()
        return response

    async with gateway_over(FakeEngine("r0", answer=holds)) as gateway, aiohttp.ClientSession() as client:
        for field, least in (({}, 0), ({"resume": True}, 1000)):
            end.clear()
            async with client.post(gateway.url + CHAT, json=chat("a" * 1000) | {"stream": True} | field) as response:
                await begun.acquire()
                await response.content.readany()
                assert gateway.body_bytes >= least
                assert (gateway.body_bytes > 0) == (least > 0)
                end.set()
                await response.read()
            assert gateway.body_bytes == 0


@pytest.fixture
def pair(tiny_model: Path, tmp_path: Path) -> Iterator[list[Served]]:
    """Two real engines whose steps take 30 ms, so that a stream can be cut in its middle."""
    with ExitStack() as stack:
        yield [stack.enter_context(serving(tiny_model, tmp_path / f"log{n}", "--pace", PACE)) for n in range(2)]


@pytest.mark.parametrize("dies", ["the pod", "its engine process"])
@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1.2, "seed": 7}], ids=["greedy", "seeded"])
async def test_a_stream_of_a_killed_engine_goes_on_as_if_nothing_had_happened(
    pair: list[Served], sampling: dict[str, float], dies: str
) -> None:
    asked = ASKED | {"resume": True} | sampling
    async with gateway_of(pair) as (gateway, client):
        undisturbed, _ = await read(client, gateway.url + CHAT, asked, None)
        cut, replica = await read(client, gateway.url + CHAT, asked, pair, whole=dies == "the pod")
        await check_counts(gateway, broken=1.0, resumed=1.0)
    assert pair[replica].process.wait(60) != 0
    assert len({chunk["id"] for chunk in cut}) == 1
    assert text_of(cut) == text_of(undisturbed)
    assert [chunk["usage"]["completion_tokens"] for chunk in cut if chunk["usage"]] == [60]


async def test_a_stream_whose_engine_process_dies_ends_with_the_engines_error_and_counts_as_broken(
    pair: list[Served],
) -> None:
    async with gateway_of(pair) as (gateway, client):
        await read(client, gateway.url + CHAT, ASKED, None)
        cut, _ = await read(client, gateway.url + CHAT, ASKED, pair, whole=False)
        await check_counts(gateway, broken=1.0, resumed=0.0)
    assert [chunk["error"]["code"] for chunk in cut if "error" in chunk] == ["internal_error"]
    assert "error" in cut[-1]


@pytest.mark.parametrize("drawn", [1, 7, 10_000], ids=["byte by byte", "in pieces", "at once"])
@pytest.mark.parametrize("field", [{}, {"resume": True}], ids=["plain", "resumable"])
async def test_without_another_replica_the_client_sees_the_engines_error_event(
    field: dict[str, bool], drawn: int
) -> None:
    sent = event("a") + b": tokens 5\n\n" + error_of("draining")

    async def drains(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for start in range(0, len(sent), drawn):
            await response.write(sent[start : start + drawn])
        return response

    async with (
        gateway_over(FakeEngine("r0", answer=drains), admin_port=0) as gateway,
        aiohttp.ClientSession() as client,
        client.post(gateway.url + CHAT, json=chat("a") | {"stream": True} | field) as response,
    ):
        assert await response.read() == (sent if not field else event("a") + error_of("draining"))
        assert await metric(gateway, "sluice_gateway_broken_streams_total 1.0")


def error_of(code: str) -> bytes:
    return EventEncoder(ChatFormat(), HEAD, include_usage=False).error(
        Unavailable("x.", code=code, retry_after=1).body()
    )


ENCODERS: dict[str, Callable[[], Encoder]] = {
    "chat": lambda: EventEncoder(ChatFormat(), HEAD, include_usage=False),
    "messages": lambda: MessageEncoder(HEAD, Usage(1)),
    "responses": lambda: ResponseEncoder({}, HEAD, Usage(1)),
}


@pytest.mark.parametrize("api", ENCODERS)
def test_the_error_event_of_an_engine_that_stops_is_known_in_each_api(api: str) -> None:
    for error in (Unavailable("It stops.", code="draining", retry_after=1), InternalError("id")):
        encoder = ENCODERS[api]()
        said = encoder.error(error.body())
        assert ends_broken(b"data: {}\n\n" + said)
        assert not ends_broken(said + encoder.closing(Usage(1)))
        assert not ends_broken(said[:-1])


@given(st.binary(max_size=100))
def test_no_other_end_of_a_stream_is_an_error_event(content: bytes) -> None:
    for said in (content, b'data: {"error"' + content + b"\n\n", b'data: ["error"]\n\n', event('"error" draining')):
        assert not ends_broken(said)
    assert not ends_broken(b'data: {"error": {"code": "invalid_value", "type": "invalid_request_error"}}\n\n')


ASKED = {
    "model": "tiny", "messages": [{"role": "user", "content": "Tell me of caches"}], "max_tokens": 60, "stream": True,
    "stream_options": {"include_usage": True}, "ignore_eos": True, "temperature": 0,
}  # fmt: skip


@asynccontextmanager
async def gateway_of(pair: list[Served]) -> AsyncIterator[tuple[Gateway, aiohttp.ClientSession]]:
    """A gateway over real engines, all of them of the canary revision."""
    backends = [
        Backend(f"r{n}", "127.0.0.1", one.port, f"http://127.0.0.1:{one.admin_port}") for n, one in enumerate(pair)
    ]
    options = GatewayOptions(port=0, admin_port=0, policy="RoundRobin")
    canary = Canary(1.0, frozenset(each.name for each in backends))
    async with (
        Gateway(lambda: backends, options, canaries=lambda: {"tiny": canary}) as gateway,
        aiohttp.ClientSession() as client,
    ):
        yield gateway, client


async def check_counts(gateway: Gateway, *, broken: float, resumed: float) -> None:
    """Of an undisturbed stream and of one whose replica broke it off."""
    for line in (
        f"sluice_gateway_broken_streams_total {broken}",
        f"sluice_gateway_resumed_streams_total {resumed}",
        'sluice_gateway_revision_requests_total{result="error",revision="canary"} 1.0',
    ):
        assert await metric(gateway, line)


def text_of(chunks: list[dict]) -> str:  # type: ignore[type-arg]
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks if chunk["choices"])


async def read(
    client: aiohttp.ClientSession, url: str, asked: dict[str, object], kill: list[Served] | None, *, whole: bool = True
) -> tuple[list[dict], int]:  # type: ignore[type-arg]
    """The chunks of a stream. With `kill`, the engine that sends it is killed after its tenth event; its number.

    `whole`: both of its processes, else the one that computes.
    """
    killed, chunks, done = -1, [], False
    async with client.post(url, json=asked) as response:
        assert response.status == 200
        async for line in response.content:
            if line.startswith(b": ") and asked.get("resume"):
                raise AssertionError("a client sees no comment")
            if line == b"data: [DONE]\n":
                assert not done
                done = True
            elif line.startswith(b"data: "):
                chunks.append(json.loads(line.removeprefix(b"data: ")))
            if kill is not None and killed < 0 and len(chunks) == 10:
                killed = next(n for n, one in enumerate(kill) if one.metric("sluice_requests_running") > 0)
                os.kill(kill[killed].process.pid if whole else kill[killed].engine_pid(), signal.SIGKILL)
    assert done != ("error" in chunks[-1])
    return chunks, killed

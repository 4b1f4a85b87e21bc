"""Replicas' events over sockets: what the gateway asks, and feeds that are slow, end, or are wrong in any way."""

import asyncio
import logging
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from sluice import contract
from sluice_engine import messages
from sluice_engine.server.engine.kv_feed import _text as event
from sluice_engine.server.engine.kv_feed import event_text
from sluice_gateway.replicas.kv_feeds import FeedTimes
from sluice_gateway.replicas.read_access import ReadOptions
from sluice_gateway.routing.replica_cache import ReplicaCache
from sluice_gateway.server import Gateway
from tests.engine.server.transport.test_connection_limits import until
from tests.gateway.engines import FakeEngine, gateway_over, load_document
from tests.gateway.test_fleet import chat, chosen, metric

TIMES = FeedTimes(look=0.005, silence=60.0, first_wait=0.005, longest_wait=0.02)
TEXT = "a" * 4000


class FeedingEngine(FakeEngine):
    """An engine with a feed, which `send` writes to."""

    def __init__(self, name: str = "r0", **options: Any) -> None:
        super().__init__(name, **options)
        self.readers: list[web.StreamResponse] = []
        self.asked: list[web.Request] = []
        self.status = 200
        self.type = contract.TYPE_EVENTS
        self.first = event_text("begin", None, {"engine": name})

    async def start(self, data_port: int = 0) -> None:
        """As an engine, with the path of events."""
        await super().start(data_port)
        admin = web.Application()
        admin.router.add_get("/load", self._load)
        admin.router.add_get(contract.PATH_KV_EVENTS, self._feed)
        port = await self._listen(admin, 0)
        object.__setattr__(self.backend, "admin_url", f"http://127.0.0.1:{port}")

    async def _feed(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        if self.status != 200:
            return web.Response(status=self.status)
        response = web.StreamResponse(headers={"Content-Type": self.type})
        await response.prepare(request)
        await response.write(self.first)
        self.readers.append(response)
        await asyncio.Event().wait()
        return response

    async def send(self, *events: messages.KvStored | messages.KvRemoved, first: int = 1) -> None:
        """Send events to the newest reader."""
        for number, each in enumerate(events, start=first):
            await self.readers[-1].write(event(each, number))

    def cut(self) -> None:
        """Close the newest reader's connection."""
        transport = self.asked[-1].transport
        assert transport is not None
        transport.close()


@asynccontextmanager
async def following(*engines: FakeEngine, times: FeedTimes = TIMES, **options: Any) -> AsyncIterator[Gateway]:
    async with gateway_over(*engines, kv_feeds=times, admin_port=0, **options) as gateway:
        yield gateway


async def followed(gateway: Gateway) -> None:
    await until(lambda: all(state.is_followed for state in gateway.fleet.states()))


def tag_of(engine: FakeEngine) -> str:
    """The name that the gateway gave to the prompt of the last request."""
    return engine.seen[-1].headers[contract.HEADER_PROMPT_TAG]


def known(gateway: Gateway, name: str = "r0") -> int:
    """Steps that the replica is thought to have."""
    cache = gateway.fleet.caches._caches.get(name)
    return 0 if cache is None else len(cache)


async def test_prefixes_that_an_engine_evicts_leave_the_view_and_requests_go_elsewhere() -> None:
    engines = [FeedingEngine("r0"), FeedingEngine("r1")]
    async with following(*engines) as gateway:
        await followed(gateway)
        first = str(await chosen(gateway, chat(TEXT)))
        holder = next(engine for engine in engines if engine.name == first)
        steps = known(gateway, first)
        await holder.send(messages.KvStored(tag_of(holder), 1000, 16, tuple(range(62))))
        assert await chosen(gateway, chat(TEXT)) == first
        assert await metric(gateway, "sluice_gateway_followed_replicas 2.0")
        assert tag_of(holder) != holder.seen[0].headers[contract.HEADER_PROMPT_TAG]
        await holder.send(messages.KvRemoved(tuple(range(61, 30, -1))), first=2)
        await until(lambda: known(gateway, first) <= steps // 2 + 1)
        await holder.send(messages.KvRemoved(tuple(range(31))), first=3)
        await until(lambda: known(gateway, first) == 0)


async def with_stored_prompt(engine: FeedingEngine, gateway: Gateway) -> ReplicaCache:
    """What the gateway knows of the engine's cache, after the engine has said in which blocks the prompt TEXT lies."""
    await followed(gateway)
    await chosen(gateway, chat(TEXT))
    await engine.send(messages.KvStored(tag_of(engine), 1000, 16, tuple(range(62))))
    cache = gateway.fleet.caches._caches["r0"]
    await until(lambda: cache.is_followed)
    return cache


async def test_clients_cannot_name_prompts_and_nothing_is_named_without_a_feed() -> None:
    engine = FeedingEngine()
    async with gateway_over(engine) as gateway:
        await chosen(gateway, chat(TEXT), **{contract.HEADER_PROMPT_TAG: "forged"})
        assert contract.HEADER_PROMPT_TAG not in engine.seen[-1].headers
        assert engine.asked == []
    async with following(FeedingEngine(), policy="LeastLoaded") as gateway:
        await chosen(gateway, chat(TEXT))
        assert not any(state.is_followed for state in gateway.fleet.states())


async def test_a_feed_that_ends_is_asked_for_again_and_meanwhile_the_cache_is_estimated() -> None:
    engine = FeedingEngine()
    async with following(engine) as gateway:
        cache = await with_stored_prompt(engine, gateway)
        steps = known(gateway)
        engine.cut()
        await until(lambda: len(engine.readers) == 2)
        await followed(gateway)
        assert (known(gateway), cache.is_followed, cache._tied) == (steps, False, {})
        await engine.send(messages.KvRemoved(tuple(range(62))), first=70)  # of blocks that this reader has not seen
        await chosen(gateway, chat("b" * 4000))
        await engine.send(messages.KvStored(tag_of(engine), 500, 16, ()), first=71)
        await until(lambda: cache.is_followed)
        assert known(gateway) == steps


async def test_another_engine_behind_the_same_address_has_an_empty_cache() -> None:
    engine = FeedingEngine()
    async with following(engine) as gateway:
        await followed(gateway)
        await chosen(gateway, chat(TEXT))
        assert known(gateway) > 0
        engine.first = event_text("begin", None, {"engine": "restarted"})
        engine.cut()
        await until(lambda: known(gateway) == 0)


async def test_lost_events_leave_an_estimate() -> None:
    engine = FeedingEngine()
    async with following(engine) as gateway:
        cache = await with_stored_prompt(engine, gateway)
        await engine.send(messages.KvRemoved((1000,)), first=5)
        await until(lambda: not cache.is_followed)
        assert known(gateway) > 0


async def test_a_silent_feed_is_given_up_and_asked_for_again() -> None:
    engine = FeedingEngine()
    async with following(engine, times=replace(TIMES, silence=0.05)) as gateway:
        await until(lambda: len(engine.asked) >= 3)
        assert await chosen(gateway, chat("a")) == "r0"


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (b"\x00\xff" * 100 + b"\n\n", "is wrong: it has lines that are no server-sent events"),
        (b"event: removed\nid: 1\ndata: {\"blocks\": [-5]}\n\n", "is wrong: an event removed is wrong"),
        (b"event: stored\ndata: {}\n\n", "is wrong: an event has no number"),
        (b"x" * (1200 * 1024), "is wrong: an event has more than 1048576 bytes"),
    ],
    ids=["bytes", "numbers", "no number", "endless"],
)  # fmt: skip
async def test_a_wrong_feed_takes_nothing_down_and_is_said_once(
    first: bytes, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    engine, other = FeedingEngine(), FeedingEngine("r1")
    engine.first = first
    with caplog.at_level(logging.WARNING, "sluice.gateway"):
        async with following(engine, other) as gateway:
            await until(lambda: len(engine.asked) >= 4)
            for number in range(4):
                assert await chosen(gateway, chat(f"{number}" * 2000)) in ("r0", "r1")
            assert all(state.fault is None for state in gateway.fleet.states())
    lines = [line for line in caplog.messages if contract.PATH_KV_EVENTS in line]
    assert len(lines) == 1
    assert f"{contract.PATH_KV_EVENTS} of replica r0 {said}" in lines[0]


@pytest.mark.parametrize(
    ("status", "said"), [(401, "is refused"), (404, "does not exist"), (500, "has status 500"), (503, "")]
)
async def test_an_engine_without_a_feed_serves(status: int, said: str, caplog: pytest.LogCaptureFixture) -> None:
    engine = FeedingEngine()
    engine.status = status
    with caplog.at_level(logging.WARNING, "sluice.gateway"):
        async with following(engine) as gateway:
            await until(lambda: len(engine.asked) >= 3)
            assert await chosen(gateway, chat(TEXT)) == "r0"
            assert contract.HEADER_PROMPT_TAG not in engine.seen[-1].headers
    assert [said in line for line in caplog.messages if contract.PATH_KV_EVENTS in line] == [True] * bool(said)


async def test_a_feed_without_an_end_takes_bounded_memory_and_holds_up_no_request() -> None:
    """Prompts that nobody sent, blocks that nobody knows, as fast as the socket takes them: 30 MB."""
    engine = FeedingEngine()
    async with following(engine) as gateway:
        await followed(gateway)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for turn in range(60):
            sent = [messages.KvStored(f"x-{turn}-{n}", 90_000, 16, tuple(range(n, n + 5000))) for n in range(10)]
            await engine.send(*sent, messages.KvRemoved(tuple(range(20_000))), first=1 + 11 * turn)
            assert await chosen(gateway, chat(f"{turn}" * 500)) == "r0"
        assert known(gateway) < 1000
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


async def test_the_feed_is_read_with_the_token_of_engines_that_are_given_by_address(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("r34d\n")
    engine = FeedingEngine(load=load_document(running=3), read_token="r34d")
    async with following(engine, reads=ReadOptions(token=tmp_path / "token")) as gateway:
        await followed(gateway)
        assert {request.headers["Authorization"] for request in engine.asked} == {"Bearer r34d"}
        (state,) = gateway.fleet.states()
        assert state.load is not None and state.load.running == 3


async def test_replicas_that_go_and_come_are_followed() -> None:
    engine, other = FeedingEngine(), FeedingEngine("r1")
    present: list[FakeEngine] = [engine]
    async with following(engine, other) as gateway:
        gateway.fleet._backends = lambda: [each.backend for each in present]
        await until(lambda: len(engine.readers) == 1)
        present.append(other)
        await followed(gateway)
        present.remove(engine)
        await until(lambda: engine.asked[0].transport is None)
        assert (len(engine.asked), len(other.asked)) == (1, 1)

"""`/kv_events` over sockets: what a real engine sends, and readers that are slow, many, or leave."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from sluice import contract
from sluice.httpapi.connection import HttpServer
from sluice.httpapi.connection_limits import ConnectionLimits
from sluice_engine import messages
from sluice_engine.server.api import admin
from sluice_engine.server.context import Serving
from sluice_engine.server.engine.kv_feed import MAX_PENDING_BYTES, MAX_READERS, FeedReader, KvFeed
from sluice_engine.server.errors import Unavailable
from sluice_engine.server.lifecycle import Lifecycle
from sluice_engine.server.transport.router import Router
from tests.engine.server.api.generation.test_handlers import OPTIONS, FakeEngineClient
from tests.engine.server.test_metrics import Story
from tests.engine.server.transport.test_connection_limits import until
from tests.engine.serving import JSON, Served, serving

REMOVED = messages.KvEvents((messages.KvRemoved(tuple(range(1000, 2000))),))  # some 5 kB


@contextmanager
def followed(served: Served) -> Iterator[HTTPResponse]:
    connection = HTTPConnection("127.0.0.1", served.admin_port, timeout=60)
    connection.request("GET", contract.PATH_KV_EVENTS)
    response = connection.getresponse()
    assert (response.status, response.getheader("Content-Type")) == (200, contract.TYPE_EVENTS)
    assert (response.readline(), response.readline()[:16]) == (b"event: begin\n", b'data: {"engine":')
    assert response.readline() == b"\n"
    yield response
    response.close()
    connection.close()


def next_event(response: HTTPResponse) -> tuple[str, int, dict[str, Any]]:
    """Kind, number and data of the next event; heartbeats are passed over."""
    fields: dict[str, str] = {}
    while "data" not in fields:
        line = response.readline()
        assert line, "the feed has ended"
        name, _, value = line.decode().strip().partition(": ")
        fields[name] = value
    return fields["event"], int(fields["id"]), json.loads(fields["data"])


def ask(served: Served, prompt: str | list[str], tag: str) -> int:
    """Complete a prompt that has this tag; its length in tokens."""
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 1}
    answer = served.request("POST", contract.PATH_COMPLETIONS, body, JSON | {contract.HEADER_PROMPT_TAG: tag})
    assert answer.status == 200
    return int(answer.json()["usage"]["prompt_tokens"])


def test_a_reader_is_told_where_a_tagged_prompt_lies_and_when_its_blocks_leave(
    tiny_model: Path, tmp_path: Path
) -> None:
    with serving(tiny_model, tmp_path / "log") as served:
        ask(served, "Before there is a reader. " * 20, "early")
        with followed(served) as feed:
            ask(served, "A gateway routes requests. " * 20, "not/a tag")
            ask(served, ["one " * 100, "two " * 100], "several")
            tokens = ask(served, "The cache has pages. " * 20, "f1-a")
            kind, first, stored = next_event(feed)
            assert (kind, stored["prompt"], stored["tokens"]) == ("stored", "f1-a", tokens)
            assert len(stored["blocks"]) == len(set(stored["blocks"])) == tokens // stored["block_tokens"] > 2
            again = ask(served, "The cache has pages. " * 20, "f1-b")
            assert next_event(feed) == ("stored", first + 1, stored | {"prompt": "f1-b", "tokens": again})
            for number in range(20):  # more than the pool has
                ask(served, f"{number} is a number. " * 80, "")
            left: list[int] = []
            while set(left) != set(stored["blocks"]):
                kind, number, data = next_event(feed)
                assert kind == "removed"
                left += data["blocks"]
            assert sorted(left) == sorted(stored["blocks"])
            assert left.index(stored["blocks"][-1]) < left.index(stored["blocks"][0])
            assert served.metric("sluice_requests_running") == 0
            served.signal(signal.SIGTERM)
            assert not feed.read().strip(b":\n")  # the drain ends the feed
            assert served.process.wait(60) == contract.EXIT_OK


class AdminPort:
    """The admin port of an engine that is the test."""

    def __init__(self) -> None:
        self.client = FakeEngineClient(Story().metrics)
        self.lifecycle = Lifecycle(0.0, lambda: None)
        self.serving = Serving(OPTIONS, Story().metrics, self.lifecycle, self.client)
        self.url = ""

    @property
    def told(self) -> list[messages.FollowKv]:
        return [message for message in self.client.sent if isinstance(message, messages.FollowKv)]


@pytest.fixture
async def port() -> AsyncIterator[AdminPort]:
    found = AdminPort()
    routes = admin.routes(admin.AdminToken(None, loopback=True))
    server = HttpServer(Router(found.serving, routes, loopback=True), ConnectionLimits(64))
    runner = web.ServerRunner(server, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}{contract.PATH_KV_EVENTS}"
    yield found
    found.lifecycle.failed()
    await runner.cleanup()
    found.serving.threads.shutdown()


async def test_a_server_that_loads_or_drains_has_no_feed(port: AdminPort) -> None:
    async with aiohttp.ClientSession() as client:
        async with client.get(port.url) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (503, "loading")
        port.lifecycle.loaded()
        async with client.get(port.url) as response:
            assert (response.status, port.told) == (200, [messages.FollowKv(True)])
            port.lifecycle.drain()
            assert (await response.read()).removeprefix(port.serving.kv_feed.opening).strip(b":\n") == b""
        assert port.told == [messages.FollowKv(True), messages.FollowKv(False)]
        async with client.get(port.url) as response:
            assert (response.status, (await response.json())["error"]["code"]) == (503, "draining")


async def test_the_engine_records_while_there_is_a_reader(port: AdminPort) -> None:
    port.lifecycle.loaded()
    async with aiohttp.ClientSession() as client:
        first, second = await client.get(port.url), await client.get(port.url)
        assert port.told == [messages.FollowKv(True)]
        first.close()
        second.close()
        await until(lambda: len(port.told) == 2)
        assert port.told[1:] == [messages.FollowKv(False)]
    assert not port.serving.kv_feed.is_read
    assert port.serving.busy.idle.is_set()


async def test_a_reader_that_reads_nothing_loses_events_is_told_so_and_goes_on(port: AdminPort) -> None:
    port.lifecycle.loaded()
    feed = port.serving.kv_feed
    async with aiohttp.ClientSession(read_bufsize=1024) as client, client.get(port.url) as response:
        (reader,) = feed._readers
        while not reader._lost:
            feed.publish(REMOVED)
            await asyncio.sleep(0)
        lost = reader._lost
        assert reader._size == 0
        parts, numbers = b"", list[int]()
        feed.publish(REMOVED)
        async with asyncio.timeout(60):
            while b"event: reset" not in parts or not parts.endswith(b"]}\n\n"):
                parts += await response.content.readany()
        reset = json.loads(parts.partition(b"event: reset\ndata: ")[2].partition(b"\n")[0])
        numbers = [int(line[4:]) for line in parts.split(b"\n") if line.startswith(b"id: ")]
        gaps = [after - before - 1 for before, after in pairwise(numbers)]
        assert max(gaps) == reset["lost"] == lost
        assert sum(gap > 0 for gap in gaps) == 1


async def test_a_reader_holds_no_more_than_its_bound() -> None:
    reader = FeedReader()
    for _ in range(3 * MAX_PENDING_BYTES // 1000):
        reader.push(b"x" * 1000)
        assert reader._size == sum(map(len, reader._pending)) <= MAX_PENDING_BYTES
    taken = await reader.next(1.0)
    assert taken is not None and taken.startswith(b'event: reset\ndata: {"lost":')
    assert await reader.next(0.0) == b":\n\n"
    reader.close()
    assert await reader.next(1.0) is None


async def test_there_are_only_so_many_readers() -> None:
    feed, told = KvFeed(lambda message: told.append(message.on)), list[bool]()
    held = [feed.reader() for _ in range(MAX_READERS)]
    for each in held:
        each.__enter__()
    with pytest.raises(Unavailable, match="16 readers"), feed.reader():
        pass
    for each in held:
        each.__exit__(None, None, None)
    assert told == [True, False]

"""What the gateways hold: counts from feeds that break, lie and come back, and gateways that come and go."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from sluice import contract
from sluice_operator.cluster.client import Key
from sluice_operator.gateways.feed import BadFeed, follow, parse_held
from sluice_operator.gateways.held_requests import HeldRequests
from sluice_operator.gateways.watch import Gateways, gateways_in, reading

CHAT, SEARCH = Key("ns", "chat"), Key("ns", "search")


def test_counts_of_all_gateways_are_added_and_only_the_first_and_the_last_wake() -> None:
    woken: list[Key] = []
    held = HeldRequests()
    held.on_change = woken.append
    held.report("a", {CHAT: 3})
    held.report("b", {CHAT: 200, SEARCH: 1})
    held.report("a", {CHAT: 90})
    assert (held.held(CHAT), held.held(SEARCH), held.held(Key("ns", "other"))) == (290, 1, 0)
    assert woken == [CHAT, SEARCH]
    held.report("a", {})
    assert (held.held(CHAT), woken) == (200, [CHAT, SEARCH])
    held.forget("b")
    assert (held.held(CHAT), held.held(SEARCH), woken) == (0, 0, [CHAT, SEARCH, CHAT, SEARCH])


@pytest.mark.parametrize(
    "line",
    [b"", b"[]", b"7", b'{"chat": 1}', b'{"/chat": 1}', b'{"ns/": 1}', b'{"ns/chat": -1}', b'{"ns/chat": true}',
     b'{"ns/chat": 1.5}', b'{"ns/chat": "1"}', b"\xff", b"[" * 100_000,
     json.dumps({f"ns/{number}": 1 for number in range(10_001)}).encode()],
    ids=lambda line: line[:16].decode(errors="replace"),
)  # fmt: skip
def test_a_line_that_is_not_of_the_contract_is_refused(line: bytes) -> None:
    with pytest.raises(BadFeed):
        parse_held(line)


def test_a_line_of_the_contract_is_read() -> None:
    assert parse_held(b'{"ns/chat": 3, "team/a": 1}\n') == {CHAT: 3, Key("team", "a"): 1}


class Feeds:
    """A gateway's admin port: each connection sends the next of `answers`; the last one stays open."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.tokens: list[str | None] = []

    async def serve(self, request: web.Request) -> web.StreamResponse:
        assert request.path == contract.PATH_HELD
        self.tokens.append(request.headers.get("Authorization"))
        found = self.answers.pop(0)
        if isinstance(found, int):
            return web.Response(status=found)
        response = web.StreamResponse()
        await response.prepare(request)
        for line in found:
            await response.write(line + b"\n")
        if not self.answers:
            await asyncio.Event().wait()
        return response


@asynccontextmanager
async def followed(*answers: Any, read_token: str = "") -> AsyncIterator[tuple[HeldRequests, list[int], asyncio.Event]]:
    """The counts of a gateway, and the sum for `chat` at each change."""
    feeds = Feeds(*answers)
    runner = web.ServerRunner(web.Server(feeds.serve), shutdown_timeout=0.1)  # type: ignore[arg-type]
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sums: list[int] = []
    held, changed = HeldRequests(), asyncio.Event()

    def note(key: Key) -> None:
        sums.append(held.held(key))
        changed.set()

    held.on_change = note
    async with reading(read_token) as session:
        gateway = ("gateway-1", f"http://127.0.0.1:{runner.addresses[0][1]}")
        task = asyncio.create_task(follow(session, gateway, held, lambda _: asyncio.sleep(0)))
        yield held, sums, changed
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert set(feeds.tokens) == {f"Bearer {read_token}" if read_token else None}
    assert held.held(CHAT) == 0, "a gateway that is no longer followed holds nothing"
    await runner.cleanup()


async def until(sums: list[int], changed: asyncio.Event, expected: list[int]) -> None:
    async with asyncio.timeout(10):
        while sums != expected:
            changed.clear()
            await changed.wait()


@pytest.mark.parametrize("read_token", ["", "r34d"])
async def test_changes_are_read_as_they_come_with_the_token_of_the_release(read_token: str) -> None:
    lines = [b"{}", b'{"ns/chat": 1}', b'{"ns/chat": 200}', b"{}", b'{"ns/chat": 7}']
    async with followed(lines, read_token=read_token) as (held, sums, changed):
        await until(sums, changed, [1, 0, 7])
        assert held.held(CHAT) == 7


async def test_a_feed_that_ends_or_is_wrong_holds_nothing_until_it_is_read_again() -> None:
    one = [b'{"ns/chat": 1}']
    async with followed(one, 503, [b'{"ns/chat": 2}', b"garbage"], 404, one) as (held, sums, changed):
        await until(sums, changed, [1, 0, 2, 0, 1])
        assert held.held(CHAT) == 1


def test_every_pod_of_the_service_is_a_gateway_once_even_while_it_drains() -> None:
    def endpoint(pod: str, address: str, **conditions: bool) -> dict[str, Any]:
        return {"addresses": [address], "targetRef": {"kind": "Pod", "name": pod}, "conditions": conditions}

    slices: dict[tuple[str, str], dict[str, Any]] = {
        ("s", "a"): {"endpoints": [endpoint("g1", "10.0.0.1"), endpoint("g2", "10.0.0.2", ready=False)]},
        ("s", "b"): {"addressType": "IPv6", "endpoints": [endpoint("g1", "fd00::1"), endpoint("g3", "fd00::3")]},
        ("s", "c"): {"endpoints": None},
    }
    assert gateways_in(slices) == {
        "g1": "http://10.0.0.1:8081",
        "g2": "http://10.0.0.2:8081",
        "g3": "http://[fd00::3]:8081",
    }


async def test_without_a_service_no_gateway_holds_requests() -> None:
    gateways = Gateways(None, "system", "")
    assert gateways.held("ns", "chat") is None
    running = asyncio.create_task(gateways.run(lambda _: None))
    await asyncio.sleep(0)
    assert not running.done(), "the end of a task ends the operator"
    running.cancel()
    assert Gateways(None, "system", "gateway").held("ns", "chat") == 0

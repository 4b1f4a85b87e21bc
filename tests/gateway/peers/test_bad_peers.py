"""Another gateway that lies, answers garbage, is of an older release or does not answer: the others are read all the same."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from sluice import contract
from sluice_gateway.routing import Prompt
from sluice_gateway.server import Gateway
from tests.gateway.engines import FakeEngine
from tests.gateway.peers.test_sent_prompts import prompt, two_gateways
from tests.gateway.test_fleet import LONG, chat, chosen

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
GATEWAYS = 8


@asynccontextmanager
async def peer(answer: Answer) -> AsyncIterator[str]:
    """The URL of an admin port that answers any read so."""
    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"[" * 65536)


def text(body: str, status: int = 200) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(text=body, status=status)

    return answer


BAD: dict[str, Answer] = {
    "an older release": text("404: Not Found", 404),
    "an error": text("{}", 500),
    "no JSON": text("hello"),
    "deep JSON": text("[" * 100_000),
    "another document": text('{"start": "x", "uses": []}'),
    "a step of hardly a token": text('{"start": "x", "last": 1, "prompts": [["r0", 1e-320, "AAAAAAAAAAA="]]}'),
    "too many prompts": text('{"start": "x", "last": 1, "prompts": [' + '["r0", 64.0, ""],' * 200_000 + "]}"),
    "an endless body": endless,
}


@pytest.mark.parametrize("kind", BAD)
async def test_a_bad_gateway_hides_no_other(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with two_gateways(tmp_path, FakeEngine("r0")) as (one, other), peer(BAD[kind]) as bad:
        one.shared_by(3, [bad, other.admin_url])
        for number in range(3):
            other.fleet.sent_prompts.add("r0", prompt((number,)))
            await one.prompts_of_others.read()
            assert len(one.fleet.caches) == number + 1
    assert len([line for line in caplog.messages if "another gateway cannot be read" in line]) == 1


async def test_a_redirect_gets_no_token(tmp_path: Path) -> None:
    given = list[str]()

    async def takes(request: web.Request) -> web.StreamResponse:
        given.append(request.headers.get("Authorization", ""))
        return web.json_response({"start": "x", "last": 0, "prompts": []})

    async with two_gateways(tmp_path, FakeEngine("r0")) as (one, _), peer(takes) as thief:

        async def leads(_: web.Request) -> web.StreamResponse:
            raise web.HTTPFound(thief + contract.PATH_PROMPTS)

        async with peer(leads) as bad:
            one.shared_by(2, [bad])
            await one.prompts_of_others.read()
    assert given == []


async def test_a_gateway_that_does_not_answer_delays_no_other(tmp_path: Path) -> None:
    asked = list[str]()

    async def hangs(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        await asyncio.Event().wait()
        raise AssertionError

    async with two_gateways(tmp_path, FakeEngine("r0")) as (one, other), peer(hangs) as silent:
        reader = one.prompts_of_others
        reader._timeout = aiohttp.ClientTimeout(total=60)
        one.shared_by(3, [silent, other.admin_url])
        for number in range(3):
            other.fleet.sent_prompts.add("r0", prompt((number,)))
            async with asyncio.timeout(30):
                while len(one.fleet.caches) <= number:
                    reader.begin()
                    await asyncio.sleep(0)
        assert asked == [contract.PATH_PROMPTS]


async def test_a_gateway_that_answers_again_is_read_from_where_it_was(tmp_path: Path) -> None:
    """What it sent long ago would push out what replicas were sent since."""
    async with two_gateways(tmp_path, FakeEngine("r0")) as (one, other):
        learned = list[Prompt]()
        other.fleet.sent_prompts.add("r0", prompt((1,)))
        await one.prompts_of_others.read()
        one.fleet.sent_elsewhere = lambda replica, prompt: learned.append(prompt)  # type: ignore[method-assign]
        asking = one.prompts_of_others._asking
        one.prompts_of_others._asking = replace(asking, path=lambda _: "/none")
        await one.prompts_of_others.read()
        one.prompts_of_others._asking = asking
        other.fleet.sent_prompts.add("r0", prompt((2,)))
        await one.prompts_of_others.read()
        assert learned == [prompt((2,))]


async def test_eight_gateways_choose_the_same_replica(tmp_path: Path) -> None:
    engines = [FakeEngine(f"r{number}") for number in range(4)]
    async with two_gateways(tmp_path, *engines) as (first, second), AsyncExitStack() as stack:
        more = [Gateway(lambda: [engine.backend for engine in engines], first._options) for _ in range(GATEWAYS - 2)]
        for each in more:
            await stack.enter_async_context(each)
            await each.scraper.scrape()
        gateways = [first, second, *more]
        for each in gateways:
            each.shared_by(GATEWAYS, [one.admin_url for one in gateways if one is not each])
        replica = await chosen(first, chat(LONG))
        for turn, each in enumerate(gateways[1:]):
            await each.prompts_of_others.read()
            assert await chosen(each, chat(LONG, f"Answer {turn}.", "And then?")) == replica

"""Events of a real engine over sockets: the gateway's view follows a small pool, and an engine's restart."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from sluice import contract
from sluice.logs import FIELDS
from sluice_gateway.replicas.kv_feeds import FeedTimes
from sluice_gateway.replicas.static import parse_backend
from sluice_gateway.server import Gateway, GatewayOptions
from tests.engine.server.transport.test_connection_limits import until
from tests.engine.serving import Served, answers, serving, start

TIMES = FeedTimes(look=0.01, first_wait=0.01, longest_wait=0.1)
TEXTS = [f"{number} begins this text, which has the words of many others. " * 28 for number in range(12)]
KEPT = TEXTS[:3]


@asynccontextmanager
async def gateways(served: Served, *feeds: FeedTimes | None) -> AsyncIterator[list[Gateway]]:
    """One gateway per entry over the engine, which follows its events unless the entry is None."""
    backend = parse_backend(f"http://127.0.0.1:{served.port},http://127.0.0.1:{served.admin_port}")
    async with AsyncExitStack() as stack:
        found = []
        for times in feeds:
            options = GatewayOptions(port=0, kv_feeds=times)
            found.append(await stack.enter_async_context(Gateway(lambda: [backend], options)))
        await until(lambda: all(is_followed(one) for one, times in zip(found, feeds, strict=True) if times is not None))
        yield found


def is_followed(gateway: Gateway) -> bool:
    return all(state.is_followed for state in gateway.fleet.states())


def steps_of(gateway: Gateway, *, tied: bool = False) -> int:
    """Steps that the replica is thought to have; of these, those whose blocks are known."""
    caches = gateway.fleet.caches._caches.values()
    return sum(sum(map(len, cache._tied.values())) if tied else len(cache) for cache in caches)


async def ask(gateway: Gateway, text: str) -> int:
    """Complete a text; the status."""
    body = {"model": "tiny", "prompt": text, "max_tokens": 1, "ignore_eos": True}
    async with (
        aiohttp.ClientSession() as client,
        client.post(gateway.url + contract.PATH_COMPLETIONS, json=body) as response,
    ):
        await response.read()
        return response.status


async def test_prefixes_that_a_full_pool_evicts_leave_the_view_and_without_events_they_do_not(
    tiny_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A third gateway fills the pool, of which the two others know nothing."""
    with serving(tiny_model, tmp_path / "log") as served:
        async with gateways(served, TIMES, None, None) as (ours, estimating, other):
            for text in KEPT:
                assert [await ask(ours, text), await ask(estimating, text)] == [200, 200]
            await until(lambda: steps_of(ours, tied=True) == sum(len(text) // 256 for text in KEPT))
            with caplog.at_level(logging.INFO, "sluice.gateway.request"):
                await ask(ours, KEPT[0])
                await ask(estimating, KEPT[0])
                for text in TEXTS[3:]:
                    assert await ask(other, text) == 200
                await until(lambda: steps_of(ours) == 0)
                await ask(estimating, KEPT[1])
                await ask(ours, KEPT[2])
    lines = [getattr(record, FIELDS) for record in caplog.records]
    told = [(line["expected_cached_tokens"], line["cached_tokens"]) for line in (*lines[:2], *lines[-2:])]
    for expected, cached in told[:2]:  # while the pool has them, both know
        assert cached > 100
        assert abs(expected - cached) < cached / 4  # the last part of a step, and the first guess of tokens per byte
    assert told[2][0] > 100
    assert (told[2][1], told[3]) == (0, (0, 0))


async def test_a_restarted_engine_is_followed_again_from_an_empty_view(tiny_model: Path, tmp_path: Path) -> None:
    with serving(tiny_model, tmp_path / "log") as served:
        async with gateways(served, TIMES) as (ours,):
            assert await ask(ours, TEXTS[0]) == 200
            await until(lambda: steps_of(ours, tied=True) > 0)
            served.process.kill()
            served.process.wait(60)
            await until(lambda: not is_followed(ours))
            assert steps_of(ours) > 0  # no request has met it yet
            ports = ("--port", str(served.port), "--admin-port", str(served.admin_port))
            process = start(tiny_model, tmp_path / "again", *ports).process
            again = Served(process, served.port, served.admin_port, tmp_path / "again")
            try:
                again.wait(lambda: answers(again, contract.PATH_READYZ, 200), 120)
                await until(lambda: is_followed(ours))
                assert steps_of(ours) == 0
                assert await ask(ours, TEXTS[0]) == 200
                await until(lambda: steps_of(ours, tied=True) == len(TEXTS[0]) // 256)
            finally:
                process.kill()
                process.wait(60)

"""Who reads what a gateway holds: the operator, by the token of the release, whatever metrics ask for."""

import asyncio
import logging
from pathlib import Path

import aiohttp
import pytest

from sluice import contract
from sluice.auth.read_tokens import RELEASE, read_token
from sluice_gateway.replicas.read_access import ReadOptions
from sluice_operator.cluster.client import Key
from sluice_operator.gateways.feed import follow
from sluice_operator.gateways.held_requests import HeldRequests
from sluice_operator.gateways.watch import reading
from tests.gateway.cluster.test_cluster_gateway import KEY, Known, serving
from tests.gateway.engines import CHAT

TOKEN = read_token(KEY, RELEASE)


@pytest.mark.parametrize("is_guarded", [False, True])
@pytest.mark.parametrize("has_key", [False, True])
async def test_the_feed_needs_the_token_of_the_release_and_metrics_only_where_they_are_guarded(
    has_key: bool, is_guarded: bool, tmp_path: Path
) -> None:
    path = tmp_path / "key"
    if has_key:
        path.write_text(KEY)
    async with (
        serving(Known("chat"), reads=ReadOptions(path, is_guarded=is_guarded)) as (gateway, _),
        aiohttp.ClientSession(gateway.admin_url) as client,
    ):

        async def status(path: str, token: str) -> int:
            async with client.get(path, headers={"Authorization": f"Bearer {token}"}) as response:
                return response.status

        assert await status(contract.PATH_HELD, TOKEN) == (200 if has_key else 401)
        for wrong in ("", KEY, read_token(KEY, "uid-of-chat"), read_token("", RELEASE)):
            assert await status(contract.PATH_HELD, wrong) == 401
            assert await status(contract.PATH_METRICS, wrong) == (401 if is_guarded else 200)
            assert await status(contract.PATH_LIVEZ, wrong) == 200


async def test_an_operator_that_came_before_its_secret_learns_what_is_held_once_the_gateway_has_the_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, held, refused, woken = tmp_path / "key", HeldRequests(), asyncio.Event(), asyncio.Event()
    held.on_change = lambda _: woken.set()

    async def refused_once(_: float) -> None:
        refused.set()
        await asyncio.sleep(0)

    caplog.set_level(logging.INFO, "sluice_operator")
    directory = Known("chat")
    async with serving(directory, reads=ReadOptions(path)) as (gateway, client), reading(TOKEN) as session:
        following = asyncio.create_task(follow(session, ("gateway-1", gateway.admin_url), held, refused_once))
        asked = asyncio.create_task(client.post(gateway.url + CHAT, json={"model": "chat"}))
        async with asyncio.timeout(20):
            await refused.wait()
            assert held.held(Key("ns", "chat")) == 0
            path.write_text(KEY)
            await woken.wait()
        assert held.held(Key("ns", "chat")) == 1
        await directory.add("chat")
        await gateway.scraper.scrape()
        async with await asked as response:
            assert response.status == 200
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    told = [each.getMessage() for each in caplog.records if "is opened again" in each.getMessage()]
    assert told == ["the feed of gateway gateway-1 is opened again: it does not have the operator's key of reads yet"]

"""A gateway over a directory: models without a replica, requests held for them, and the feed that the operator reads."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import aiohttp
import pytest

from sluice import contract
from sluice.auth.read_tokens import RELEASE, read_key, read_token
from sluice_gateway.cluster.catalog import ClusterCatalog
from sluice_gateway.cluster.directory import Directory
from sluice_gateway.replicas.backend import Backend
from sluice_gateway.replicas.read_access import ReadOptions
from sluice_gateway.server import Gateway, GatewayOptions
from tests.gateway.cluster.documents import by_name, deployment
from tests.gateway.engines import CHAT, FakeEngine, load_document

KEY = read_key(b"k" * 32)


class Known(Directory):
    """A directory whose replicas are servers of this machine."""

    def __init__(self, *names: str, **spec: Any) -> None:
        super().__init__()
        self.engines: list[tuple[FakeEngine, str]] = []
        self.set_deployments("", by_name(*(deployment(name, **spec) for name in names)))

    def backends(self) -> tuple[Backend, ...]:
        return tuple(replace(engine.backend, model=model) for engine, model in self.engines)

    async def add(self, name: str, **options: Any) -> FakeEngine:
        number = 1 + sum(model == name for _, model in self.engines)
        engine = FakeEngine(f"{name}-{number}", load_document(model=name), **options)
        await engine.start()
        self.engines.append((engine, name))
        return engine


@asynccontextmanager
async def serving(
    directory: Known, missing: str = "", **changes: Any
) -> AsyncIterator[tuple[Gateway, aiohttp.ClientSession]]:
    """The gateway, and a client that may read what it holds."""
    catalog = ClusterCatalog(directory, lambda: missing)
    with NamedTemporaryFile("w") as key:
        key.write(KEY)
        key.flush()
        options = GatewayOptions(port=0, admin_port=0, **({"reads": ReadOptions(Path(key.name))} | changes))
        reader = {contract.HEADER_READ_TOKEN: read_token(KEY, RELEASE)}
        async with (
            Gateway(directory.backends, options, catalog=catalog) as gateway,
            aiohttp.ClientSession(headers=reader) as client,
        ):
            yield gateway, client
    for engine, _ in directory.engines:
        await engine.stop()


async def listed(gateway: Gateway, client: aiohttp.ClientSession, **headers: str) -> list[str]:
    async with client.get(gateway.url + "/v1/models", headers=headers) as response:
        assert response.status == 200
        return [one["id"] for one in (await response.json())["data"]]


async def lines_of(response: aiohttp.ClientResponse, *expected: dict[str, int]) -> None:
    """Read until these lines have come in this order; unchanged lines between them are heartbeats."""
    for line in expected:
        async with asyncio.timeout(20):
            while json.loads(await response.content.readline()) != line:
                pass


async def test_the_model_of_a_request_chooses_among_the_deployments() -> None:
    directory = Known("chat", "search")
    async with serving(directory) as (gateway, client):
        for name in ("chat", "search"):
            await directory.add(name)
        await gateway.scraper.scrape()
        for name in ("search", "chat", "search"):
            async with client.post(gateway.url + CHAT, json={"model": name}) as response:
                assert (await response.json())["from"] == f"{name}-1"


async def test_an_unknown_model_is_told_the_names_that_exist() -> None:
    async with serving(Known("chat", "search")) as (gateway, client):
        async with client.post(gateway.url + CHAT, json={"model": "none"}) as response:
            body = await response.json()
        assert (response.status, body["error"]["code"]) == (404, "model_not_found")
        assert "there is chat, search" in body["error"]["message"]


async def test_models_without_a_replica_are_listed_too() -> None:
    directory = Known("chat", "search")
    async with serving(directory) as (gateway, client):
        assert await listed(gateway, client) == ["chat", "search"]
        await directory.add("search")
        await gateway.scraper.scrape()
        assert await listed(gateway, client) == ["search", "chat"]
        async with client.get(gateway.url + "/v1/models/chat") as response:
            assert (response.status, (await response.json())["id"]) == (200, "chat")


async def test_a_model_that_asks_for_a_key_is_listed_to_callers_with_one() -> None:
    async with serving(Known("chat", auth={"apiKeysSecretRef": {"name": "keys"}})) as (gateway, client):
        assert await listed(gateway, client, Authorization="Bearer k") == ["chat"]
        async with client.get(gateway.url + "/v1/models") as response:
            assert response.status == 503  # no replica can verify that there is no key


async def test_a_burst_is_held_for_its_model_and_the_feed_has_one_rise_and_one_fall() -> None:
    directory = Known("chat", "search")
    async with (
        serving(directory) as (gateway, client),
        client.get(gateway.admin_url + contract.PATH_HELD) as feed,
    ):
        await lines_of(feed, {})
        asked = [asyncio.create_task(client.post(gateway.url + CHAT, json={"model": "chat"})) for _ in range(50)]
        async with asyncio.timeout(20):
            while (line := json.loads(await feed.content.readline())) != {"ns/chat": 50}:
                assert set(line) <= {"ns/chat"}
        await directory.add("search")  # another model's replica releases nothing
        await directory.add("chat")
        await gateway.scraper.scrape()
        await lines_of(feed, {})
        for one in await asyncio.gather(*asked):
            async with one:
                assert (one.status, (await one.json())["from"]) == (200, "chat-1")


async def test_a_reader_that_comes_later_reads_the_present_state_first() -> None:
    async with serving(Known("chat")) as (gateway, client):
        asked = asyncio.create_task(client.post(gateway.url + CHAT, json={"model": "chat"}))
        async with client.get(gateway.admin_url + contract.PATH_HELD) as feed:
            await lines_of(feed, {"ns/chat": 1})
        async with client.get(gateway.admin_url + contract.PATH_HELD) as feed:
            assert json.loads(await feed.content.readline()) == {"ns/chat": 1}
            asked.cancel()  # a client that leaves is held no longer
            await asyncio.gather(asked, return_exceptions=True)
            await lines_of(feed, {})


async def test_listing_the_models_starts_nothing() -> None:
    async with (
        serving(Known("chat")) as (gateway, client),
        client.get(gateway.admin_url + contract.PATH_HELD) as feed,
    ):
        await listed(gateway, client)
        async with client.get(gateway.url + "/health") as response:
            assert response.status == 503
        assert json.loads(await feed.content.readline()) == {}
        assert gateway.in_flight == 0


@pytest.mark.parametrize(("missing", "status"), [("the first answer of the API server", 503), ("", 200)])
async def test_a_gateway_is_ready_once_it_knows_its_models(missing: str, status: int) -> None:
    async with serving(Known("chat"), missing) as (gateway, client):
        async with client.get(gateway.admin_url + contract.PATH_READYZ) as response:
            assert response.status == status
            assert missing in (await response.json())["status"]
        async with client.get(gateway.admin_url + contract.PATH_LIVEZ) as response:
            assert response.status == 200


async def test_a_replica_that_claims_another_models_name_gets_none_of_its_requests() -> None:
    directory = Known("chat", "search")
    async with serving(directory) as (gateway, client):
        await directory.add("chat")
        liar = await directory.add("search")
        liar.load = load_document(model="chat")
        await gateway.scraper.scrape()
        for _ in range(8):
            async with client.post(gateway.url + CHAT, json={"model": "chat"}) as response:
                assert (await response.json())["from"] == "chat-1"
        assert not gateway.fleet.ready("search")

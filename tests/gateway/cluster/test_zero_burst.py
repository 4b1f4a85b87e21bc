"""A burst of 200 requests for a model at zero replicas: the operator wakes it once, and each client gets an answer or a time.

Gateway, HTTP, the feed of held requests and its reader in the operator are the real ones.
"""

import asyncio
import socket
from collections import Counter
from typing import Final

import aiohttp
import pytest
from aiohttp import web

from sluice import contract
from sluice_gateway.queueing import QueueLimits
from sluice_operator.cluster.client import Key
from sluice_operator.gateways.feed import follow
from sluice_operator.gateways.held_requests import HeldRequests
from tests.gateway.cluster.test_cluster_gateway import Known, serving
from tests.gateway.engines import CHAT, load_document
from tests.gateway.test_fleet import metric

BURST: Final = 200
LIMIT: Final = 8  # of the replica that comes
MODEL: Final = Key("ns", "chat")


class Operator:
    """What the operator knows of the model by the gateway's feed, and how often that told it to act."""

    def __init__(self) -> None:
        self.requests = HeldRequests()
        self.requests.on_change = self._changed
        self.changes: list[bool] = []  # whether requests were held
        self.changed = asyncio.Event()

    def _changed(self, key: Key) -> None:
        assert key == MODEL
        self.changes.append(bool(self.requests.held(key)))
        self.changed.set()

    async def told(self, *changes: bool) -> None:
        """Return once it was told of so many changes; they are these."""
        async with asyncio.timeout(60):
            while len(self.changes) < len(changes):
                await self.changed.wait()
                self.changed.clear()
        assert self.changes == list(changes)


@pytest.mark.parametrize(("places", "least_answered"), [(BURST, BURST), (50, LIMIT + 50)])
async def test_each_of_200_requests_is_answered_or_told_when_to_come_again_after_one_wake_up(
    places: int, least_answered: int
) -> None:
    """Also where the queue behind the replica's limit has fewer places than the burst has requests."""
    directory, operator, running, most = Known("chat"), Operator(), 0, 0

    async def answer(_: web.Request) -> web.Response:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return web.json_response({})

    async with serving(directory, queue=QueueLimits(places)) as (gateway, client):
        following = asyncio.create_task(follow(client, ("g", gateway.admin_url), operator.requests))
        connector = aiohttp.TCPConnector(limit=BURST, family=socket.AF_INET)
        async with aiohttp.ClientSession(gateway.url, connector=connector) as clients, asyncio.timeout(120):

            async def ask() -> tuple[int, int]:
                async with clients.post(CHAT, json={"model": "chat"}) as response:
                    await response.read()
                    return response.status, int(response.headers.get("Retry-After", 0))

            asked = [asyncio.create_task(ask()) for _ in range(BURST)]
            await operator.told(True)  # the operator orders the first replica
            while not await metric(gateway, f"{contract.GATEWAY_HELD} {BURST}.0"):
                pass
            engine = await directory.add("chat", answer=answer)
            engine.load = load_document(limit=LIMIT)
            await gateway.scraper.scrape()
            found = await asyncio.gather(*asked)
            await operator.told(True, False)
        following.cancel()
    statuses = Counter(status for status, _ in found)
    assert statuses.keys() <= {200, 503}
    assert statuses[200] >= least_answered
    assert all(retry_after >= 1 for status, retry_after in found if status == 503)
    assert most <= LIMIT

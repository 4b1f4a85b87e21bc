"""What a client's priority counts for in the queue of a gateway that verifies no keys."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sluice_gateway.keys.gatekeeper import KeyOptions
from sluice_gateway.queueing import QueueLimits
from tests.engine.server.auth.keys import bearer, entry, key_file
from tests.gateway.cluster.test_cluster_gateway import Known, serving
from tests.gateway.engines import CHAT, queued
from tests.gateway.test_fleet import chat
from tests.gateway.test_queue import Held

WITH_KEYS = {"apiKeysSecretRef": {"name": "keys"}}


async def served_order(priorities: dict[str, int], spec: dict[str, Any], **options: Any) -> list[str]:
    """The users in the order in which a replica with a limit of one request gets them, all asked while it is busy."""
    directory, held = Known("chat", **spec), Held(limit=1)
    async with serving(directory, queue=QueueLimits(), **options) as (gateway, client):
        engine = await directory.add("chat", answer=held.answer)
        engine.load |= {"limit": 1}
        await gateway.scraper.scrape()

        async def ask(user: str, priority: int) -> int:
            body, sent = chat("a") | {"user": user, "priority": priority}, {"Authorization": bearer("team")}
            async with client.post(gateway.url + CHAT, json=body, headers=sent) as response:
                return response.status

        asked = [asyncio.create_task(ask("first", 0))]
        await held.arrived.acquire()
        for waiting, (user, priority) in enumerate(priorities.items(), start=1):
            asked.append(asyncio.create_task(ask(user, priority)))
            await queued(gateway.admin_url, waiting)
        for _ in asked:
            held.release.release()
        assert set(await asyncio.gather(*asked)) == {200}
    return held.order[1:]


async def test_a_priority_that_only_a_key_grants_is_not_taken_from_a_client_whose_key_is_not_verified() -> None:
    order = await served_order({"plain": 0, "low": -1, "forged": 100}, {"auth": WITH_KEYS})
    assert order == ["plain", "forged", "low"]


async def test_a_model_without_keys_takes_the_priority_from_every_client() -> None:
    assert await served_order({"plain": 0, "low": -1, "high": 100}, {}) == ["high", "plain", "low"]


@pytest.mark.parametrize(("ceiling", "order"), [(100, ["high", "plain"]), (0, ["plain", "high"])])
async def test_a_verified_key_grants_priorities_up_to_its_ceiling(
    ceiling: int, order: list[str], tmp_path: Path
) -> None:
    (tmp_path / "keys.yaml").write_bytes(key_file(entry("team", priority={"max": ceiling})))
    keys = KeyOptions(tmp_path / "keys.yaml")
    assert await served_order({"plain": 0, "high": 100}, {"auth": WITH_KEYS}, keys=keys) == order

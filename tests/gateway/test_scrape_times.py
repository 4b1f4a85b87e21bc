"""When the gateway asks its replicas for their loads."""

import asyncio
import itertools
from typing import Any

import aiohttp
import pytest

from sluice_gateway.replicas.backend import Backend
from sluice_gateway.replicas.fleet import Fleet
from sluice_gateway.replicas.scraper import SCRAPE_SECONDS, Scraper
from tests.operator.virtual_time import run_virtual


class Unreachable:
    """In place of a client session: notes when each URL was asked for, and reaches nothing."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, str]] = []

    def get(self, url: str, **_: Any) -> Any:
        self.asked.append((asyncio.get_running_loop().time(), url))
        raise aiohttp.ClientConnectionError


@pytest.mark.parametrize("count", [1, 4, 50])
def test_every_replica_is_asked_once_in_a_round_and_no_two_at_once(count: int) -> None:
    session = Unreachable()
    fleet = Fleet([Backend(f"r{place}", "h", 1, f"http://r{place}") for place in range(count)].copy)

    async def watched() -> None:
        scraping = asyncio.create_task(Scraper(session, fleet).run())  # type: ignore[arg-type]
        await asyncio.sleep(8.5 * SCRAPE_SECONDS)
        scraping.cancel()

    run_virtual(watched())
    times: dict[str, list[float]] = {}
    for at, url in session.asked:
        times.setdefault(url, []).append(at)
    assert len(times) == count
    for own in times.values():
        assert [later - at for at, later in itertools.pairwise(own)] == pytest.approx([SCRAPE_SECONDS] * (len(own) - 1))
    spaces = [later - at for (at, _), (later, _) in itertools.pairwise(session.asked)]
    assert spaces == pytest.approx([SCRAPE_SECONDS / count] * len(spaces))


def test_a_fleet_without_replicas_is_looked_at_again() -> None:
    backends: list[Backend] = []
    session = Unreachable()

    async def watched() -> None:
        scraping = asyncio.create_task(Scraper(session, Fleet(backends.copy)).run())  # type: ignore[arg-type]
        await asyncio.sleep(3.5 * SCRAPE_SECONDS)
        backends.append(Backend("r", "h", 1, "http://r"))
        await asyncio.sleep(SCRAPE_SECONDS)
        scraping.cancel()

    run_virtual(watched())
    assert [url for _, url in session.asked] == ["http://r/load"]

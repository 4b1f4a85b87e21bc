"""When the gateway asks its replicas for their loads. The sleeps are of a loop with virtual time."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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


def backends_of(count: int) -> list[Backend]:
    return [Backend(f"r{place}", "h", 1, f"http://r{place}") for place in range(count)]


@asynccontextmanager
async def scraping(backends: list[Backend]) -> AsyncIterator[list[tuple[float, str]]]:
    """When each was asked, while a fleet of these replicas is scraped; a test may add some."""
    session = Unreachable()
    task = asyncio.create_task(Scraper(session, Fleet(backends.copy)).run())  # type: ignore[arg-type]
    yield session.asked
    task.cancel()


@pytest.mark.parametrize("count", [1, 4, 50])
def test_every_replica_is_asked_once_in_a_round_and_no_two_at_once(count: int) -> None:
    async def watched() -> list[tuple[float, str]]:
        async with scraping(backends_of(count)) as asked:
            await asyncio.sleep(8.5 * SCRAPE_SECONDS)
        return asked

    asked = run_virtual(watched())
    times: dict[str, list[float]] = {}
    for at, url in asked:
        times.setdefault(url, []).append(at)
    assert len(times) == count
    for own in times.values():
        assert [later - at for at, later in itertools.pairwise(own)] == pytest.approx([SCRAPE_SECONDS] * (len(own) - 1))
    spaces = [later - at for (at, _), (later, _) in itertools.pairwise(asked)]
    assert spaces == pytest.approx([SCRAPE_SECONDS / count] * len(spaces))


@pytest.mark.parametrize("count", [0, 1, 50])
def test_a_new_replica_is_asked_in_the_round_after_it_has_come_before_those_that_are_known(count: int) -> None:
    backends = backends_of(count)

    async def watched() -> float:
        async with scraping(backends) as asked:
            await asyncio.sleep(3.1 * SCRAPE_SECONDS)
            came = asyncio.get_running_loop().time()
            backends.append(Backend("new", "h", 1, "http://new"))
            await asyncio.sleep(2 * SCRAPE_SECONDS)
            return next(at for at, url in asked if url == "http://new/load") - came

    assert run_virtual(watched()) == pytest.approx(0.9 * SCRAPE_SECONDS)

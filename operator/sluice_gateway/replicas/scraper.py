"""Reads every replica's `/load` four times a second, and probes those that are out."""

import asyncio
import contextlib
from typing import Final

import aiohttp

from sluice import contract
from sluice_gateway.replicas.fleet import Fleet
from sluice_gateway.replicas.load import MAX_BYTES, BadLoad, Load, parse_load
from sluice_gateway.replicas.state import REFUSES, UNREACHABLE, ReplicaState
from sluice_gateway.streaming import read_at_most

SCRAPE_SECONDS: Final = 0.25
TIMEOUT: Final = aiohttp.ClientTimeout(total=1.0)
_ERRORS: Final = (aiohttp.ClientError, TimeoutError, OSError)


class Scraper:
    """Keeps the loads of a fleet fresh while its task runs."""

    def __init__(self, session: aiohttp.ClientSession, fleet: Fleet) -> None:
        self._session = session
        self._fleet = fleet

    async def run(self) -> None:
        """Scrape until cancelled. A slow replica delays no other one's next scrape by more than its timeout."""
        while True:
            await self.scrape()
            await asyncio.sleep(SCRAPE_SECONDS)

    async def scrape(self) -> None:
        """Read all replicas once."""
        await asyncio.gather(*(self._read(state) for state in self._fleet.states()))

    async def _read(self, state: ReplicaState) -> None:
        """A document that cannot be had changes nothing: the replica may be busy. One that is wrong takes it out."""
        if state.fault is not None and not await self._accepts(state):
            return
        load: Load | None = None
        if state.backend.admin_url is not None:
            try:
                load = await self._load(state.backend.admin_url)
            except BadLoad as error:
                self._fleet.out(state, f"its {contract.PATH_LOAD} is wrong: {error}")
                return
            except _ERRORS:
                if state.fault not in (REFUSES, UNREACHABLE):
                    return
                load = state.load  # the data port answers again, and that was the fault
        self._fleet.back(state, load)

    async def _load(self, url: str) -> Load | None:
        """The document; None from a server that has none. Raises BadLoad and what aiohttp raises."""
        async with self._session.get(url + contract.PATH_LOAD, timeout=TIMEOUT) as response:
            if response.status == 404:
                return None
            body = await read_at_most(response.content, MAX_BYTES + 1)
            if response.status != 200 or len(body) > MAX_BYTES:
                raise BadLoad(f"status {response.status}, {len(body)} bytes")
            return parse_load(body)

    async def _accepts(self, state: ReplicaState) -> bool:
        """True if the data port answers."""
        with contextlib.suppress(*_ERRORS):
            async with self._session.get(state.backend.url + contract.PATH_HEALTH, timeout=TIMEOUT):
                return True
        return False

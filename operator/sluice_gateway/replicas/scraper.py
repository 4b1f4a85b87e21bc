"""Reads every replica's `/load` four times a second, and probes those that are out."""

import asyncio
import contextlib
import logging
from typing import Final

import aiohttp

from sluice import contract
from sluice_gateway.replicas.answers import ERRORS, read_at_most
from sluice_gateway.replicas.backend import Backend
from sluice_gateway.replicas.fleet import Fleet
from sluice_gateway.replicas.load import MAX_BYTES, BadLoad, Load, parse_load
from sluice_gateway.replicas.read_access import ReadTokens
from sluice_gateway.replicas.state import REFUSES, SILENT, UNREACHABLE, ReplicaState

SCRAPE_SECONDS: Final = 0.25
SILENT_SECONDS: Final = 2.0  # a busy replica answers within one; a stopped one never

log = logging.getLogger("sluice.gateway")


class Scraper:
    """Keeps the loads of a fleet fresh while its task runs."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        fleet: Fleet,
        silent_seconds: float = SILENT_SECONDS,
        tokens: ReadTokens | None = None,
    ) -> None:
        """A replica that does not answer within `silent_seconds` is out. `tokens` are for those that ask for one."""
        self._tokens = tokens or ReadTokens(None)
        self._refused: set[str] = set()
        self._session = session
        self._fleet = fleet
        self._timeout = aiohttp.ClientTimeout(total=silent_seconds)
        self._reading: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Scrape until cancelled. A slow replica delays no other one's scrape.

        The scrapes of a round are spread over it: all at once they would hold up the requests that come then. New replicas
        come first, because they get few requests until they were asked.
        """
        clock = asyncio.get_running_loop().time
        try:
            while True:
                begun, states = clock(), sorted(self._fleet.states(), key=lambda state: state.is_asked)
                for place, state in enumerate(states):
                    await asyncio.sleep(begun + SCRAPE_SECONDS * place / len(states) - clock())
                    self._begin(state)
                await asyncio.sleep(begun + SCRAPE_SECONDS - clock())
        finally:
            for task in self._reading:
                task.cancel()

    def _begin(self, state: ReplicaState) -> None:
        """Read one replica, unless it is still being read."""
        if state.backend.name not in {task.get_name() for task in self._reading}:
            task = asyncio.create_task(self._read(state), name=state.backend.name)
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)

    async def scrape(self) -> None:
        """Read all replicas once."""
        await asyncio.gather(*(self._read(state) for state in self._fleet.states()))

    async def _read(self, state: ReplicaState) -> None:
        await self._probe(state)
        if not state.is_asked:
            state.is_asked = True
            self._fleet.on_room()

    async def _probe(self, state: ReplicaState) -> None:
        """Without an admin port that can be reached nothing changes. A wrong document, or silence, takes the replica out."""
        known = state.fault
        if known is not None and not await self._accepts(state):
            if state.fault == SILENT:
                self._fleet.out(state, SILENT)  # another replica may be there by now
            return
        load: Load | None = None
        if state.backend.admin_url is not None:
            try:
                load = await self._load(state.backend, state.backend.admin_url)
            except BadLoad as error:
                self._fleet.out(state, f"its {contract.PATH_LOAD} is wrong: {error}")
                return
            except TimeoutError:
                self._fleet.out(state, SILENT)
                return
            except ERRORS:
                if state.fault not in (REFUSES, UNREACHABLE):
                    return
                load = state.load  # the data port answers again, and that was the fault
        if state.fault == known:  # else requests have met a fault since this was asked
            self._fleet.back(state, load)

    async def _load(self, backend: Backend, url: str) -> Load | None:
        """The document; None from a server that has none, or that refuses the token: it serves, and only its load is not
        known. Raises BadLoad and what aiohttp raises."""
        token = self._tokens.of(backend.owner, backend.name)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        where = url + contract.PATH_LOAD
        async with self._session.get(where, headers=headers, timeout=self._timeout, allow_redirects=False) as response:
            if response.status == 401:
                if not self._tokens.refused(backend.owner, backend.name) and backend.name not in self._refused:
                    self._refused.add(backend.name)
                    given = "the token of reads that it was sent" if token else "reads without a token"
                    log.warning("replica %s refuses %s: it is used without its load", backend.name, given)
                return None
            self._refused.discard(backend.name)
            if response.status == 404:
                return None
            body = await read_at_most(response.content, MAX_BYTES + 1)
            if response.status != 200 or len(body) > MAX_BYTES:
                raise BadLoad(f"status {response.status}, {len(body)} bytes")
            return parse_load(body)

    async def _accepts(self, state: ReplicaState) -> bool:
        """True if the data port answers."""
        with contextlib.suppress(*ERRORS):
            url = state.backend.url + contract.PATH_HEALTH
            async with self._session.get(url, timeout=self._timeout, allow_redirects=False):
                return True
        return False

"""Follows the replicas' `/kv_events`, which correct what the gateway thinks of their caches.

The view lives without them: a feed that cannot be read, ends or is wrong takes nothing down. It is tried again, after a wait
that doubles, and until then the replica's cache is known as without a feed.
"""

import asyncio
import logging
import random
import time
from dataclasses import dataclass
from typing import Final

import aiohttp

from sluice import contract
from sluice_gateway.replicas.answers import ERRORS
from sluice_gateway.replicas.backend import Backend
from sluice_gateway.replicas.fleet import Fleet
from sluice_gateway.replicas.kv_events import BadFeed, EventParser
from sluice_gateway.replicas.read_access import ReadTokens
from sluice_gateway.replicas.state import ReplicaState

log = logging.getLogger("sluice.gateway")

_REFUSALS: Final = {401: "is refused to this gateway's token of reads", 404: "does not exist: the engine is older"}


@dataclass(frozen=True, slots=True)
class FeedTimes:
    """Seconds: between two looks at the fleet, of silence after which a feed is lost (engines send something every 5 s), and
    of the first and the longest wait before a feed is tried again."""

    look: float = 0.25
    silence: float = 20.0
    first_wait: float = 0.5
    longest_wait: float = 30.0


class KvFeeds:
    """One connection per replica while its task runs."""

    def __init__(
        self, session: aiohttp.ClientSession, fleet: Fleet, tokens: ReadTokens, times: FeedTimes = FeedTimes()
    ) -> None:
        self._session = session
        self._fleet = fleet
        self._tokens = tokens
        self._times = times
        self._tasks: dict[str, tuple[ReplicaState, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Follow the replicas that there are, as far as the policy of their model reads caches, until cancelled."""
        try:
            while True:
                self._look()
                await asyncio.sleep(self._times.look)
        finally:
            for _, task in self._tasks.values():
                task.cancel()

    def _look(self) -> None:
        present = {state.backend.name: state for state in self._fleet.states() if self._fleet.reads_cache(state)}
        for name, (state, task) in list(self._tasks.items()):
            if present.get(name) is not state or task.done():
                task.cancel()
                del self._tasks[name]
        for name, state in present.items():
            if name not in self._tasks and state.backend.admin_url is not None:
                self._tasks[name] = (state, asyncio.create_task(self._follow(state), name=f"kv_events of {name}"))

    async def _follow(self, state: ReplicaState) -> None:
        times, wait, said = self._times, self._times.first_wait, ""
        while True:
            if not state.ready:
                await asyncio.sleep(times.look)
                continue
            begun = time.monotonic()
            try:
                fault = await self._read(state)
            except BadFeed as error:
                fault = f"is wrong: {error}"
            except ERRORS:
                fault = ""  # what is lost with it, requests and scrapes see as well
            finally:
                self._fleet.unfollow(state)
            if fault and fault != said:
                said = fault
                log.warning(
                    "%s of replica %s %s: its cache is estimated", contract.PATH_KV_EVENTS, state.backend.name, said
                )
            wait = times.first_wait if time.monotonic() - begun > times.longest_wait else wait
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))
            wait = min(2.0 * wait, times.longest_wait)

    async def _read(self, state: ReplicaState) -> str:
        """Read a feed to its end; returns a fault, a predicate, or "". Raises BadFeed and what aiohttp raises."""
        parser = EventParser()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=self._times.silence)
        url, headers = f"{state.backend.admin_url}{contract.PATH_KV_EVENTS}", self._headers(state.backend)
        async with self._session.get(url, headers=headers, timeout=timeout, allow_redirects=False) as response:
            if response.status == 401 and self._tokens.refused(state.backend.owner, _feed_of(state.backend)):
                return ""
            if response.status != 200:
                return "" if response.status == 503 else _REFUSALS.get(response.status, f"has status {response.status}")
            if response.content_type != contract.TYPE_EVENTS:
                return f"is not {contract.TYPE_EVENTS}"
            async for data in response.content.iter_any():
                for event in parser.feed(data):
                    self._fleet.kv_event(state, event)
                await asyncio.sleep(0)  # a feed that always has more holds up no request
        return ""

    def _headers(self, backend: Backend) -> dict[str, str]:
        token = self._tokens.of(backend.owner, _feed_of(backend))
        return {"Authorization": f"Bearer {token}"} if token else {}


def _feed_of(backend: Backend) -> str:
    """The feed's name among the reads of the replica: a refusal of one read says nothing of another key's turn."""
    return f"{backend.name}{contract.PATH_KV_EVENTS}"

"""Gateways read each other's documents: a GET on the admin port, twice a second, with the token of the release."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import aiohttp
import orjson

from sluice_gateway.replicas.answers import ERRORS, read_at_most
from sluice_gateway.replicas.read_access import ReadTokens

PERIOD_SECONDS: Final = 0.5
TIMEOUT_SECONDS: Final = 1.0
MAX_BYTES: Final = 4 * 1024 * 1024  # 30,000 tenants' uses

log = logging.getLogger("sluice.gateway")


@dataclass(frozen=True, slots=True)
class Asking:
    """`path(url)` is asked of the gateway at `url`. `learn` gets the documents by URL, and raises ValueError if one is wrong.

    `without` says what holds until all can be read. `needs_all`: the documents are learned together, and none without all
    the others; else each is learned when it comes.
    """

    path: Callable[[str], str]
    learn: Callable[[Mapping[str, Any]], None]
    without: str
    needs_all: bool = False
    most_bytes: int = MAX_BYTES


class PeerReader:
    """Asks all other gateways for one thing while its task runs. `others`: base URLs of their admin ports."""

    def __init__(self, session: aiohttp.ClientSession, tokens: ReadTokens, asking: Asking) -> None:
        self._session = session
        self._tokens = tokens
        self._asking = asking
        self._timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        self._reading: dict[str, asyncio.Task[None]] = {}  # by the name of the group
        self._failing: set[str] = set()
        self.others: Sequence[str] = ()

    async def run(self) -> None:
        """Read until cancelled."""
        try:
            while True:
                await asyncio.sleep(PERIOD_SECONDS)
                self.begin()
        finally:
            for task in self._reading.values():
                task.cancel()

    def begin(self) -> None:
        """Begin to read all that are not being read: one that is slow delays no other."""
        for name, urls in self._groups().items():
            if name not in self._reading:
                task = self._reading[name] = asyncio.create_task(self._read(name, urls))
                task.add_done_callback(partial(self._ended, name))

    def _ended(self, name: str, _: asyncio.Task[None]) -> None:
        del self._reading[name]

    async def read(self) -> None:
        """Ask all others once."""
        await asyncio.gather(*(self._read(name, urls) for name, urls in self._groups().items()))

    def _groups(self) -> Mapping[str, Sequence[str]]:
        """The gateways whose documents are learned together, by a name."""
        if self._asking.needs_all:
            return {"all": self.others} if self.others else {}
        return {url: (url,) for url in self.others}

    async def _read(self, name: str, urls: Sequence[str]) -> None:
        answers = await asyncio.gather(*map(self._answer, urls))
        error = next((answer for answer in answers if isinstance(answer, Exception)), None)
        if error is None:
            try:
                self._asking.learn(dict(zip(urls, answers, strict=True)))
            except ValueError as wrong:
                error = wrong
        self._log(name, error)

    def _log(self, name: str, error: Exception | None) -> None:
        before = bool(self._failing)
        self._failing &= self._groups().keys() - {name}
        if error is not None:
            self._failing.add(name)
            if not before:
                why = str(error) or type(error).__name__
                log.warning("another gateway cannot be read, so %s: %s", self._asking.without, why)
        elif before and not self._failing:
            log.info("all other gateways are read again; until now %s", self._asking.without)

    async def _answer(self, url: str) -> Any:
        """The document, or the error for which there is none."""
        try:
            return await self._document(url)
        except (ValueError, *ERRORS) as error:
            return error

    async def _document(self, url: str) -> Any:
        token, most = self._tokens.of_release(), self._asking.most_bytes
        headers, where = {"Authorization": f"Bearer {token}"} if token else {}, url + self._asking.path(url)
        async with self._session.get(where, headers=headers, timeout=self._timeout, allow_redirects=False) as response:
            body = await read_at_most(response.content, most + 1)
            if response.status != 200 or len(body) > most:
                raise ValueError(f"{url} answers with status {response.status} and {len(body)} bytes")
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise ValueError(f"{url} answers without JSON") from error

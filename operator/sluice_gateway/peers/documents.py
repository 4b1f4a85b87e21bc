"""Gateways read each other's documents: a GET on the admin port, twice a second, with the token of the release."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import orjson

from sluice_gateway.replicas.answers import ERRORS, read_at_most
from sluice_gateway.replicas.read_access import ReadTokens

PERIOD_SECONDS: Final = 0.5
TIMEOUT_SECONDS: Final = 1.0
MAX_BYTES: Final = 4 * 1024 * 1024  # 30,000 tenants' uses, or six times the prompts that a gateway keeps

log = logging.getLogger("sluice.gateway")


@dataclass(frozen=True, slots=True)
class Asking:
    """`path(url)` is asked of the gateway at `url`. `learn` gets the documents by URL, and raises ValueError if one is wrong.

    `without` says what holds until all can be read. `needs_all`: nothing is learned without one of them.
    """

    path: Callable[[str], str]
    learn: Callable[[Mapping[str, Any]], None]
    without: str
    needs_all: bool = False


class PeerReader:
    """Asks all other gateways for one thing while its task runs. `others`: base URLs of their admin ports."""

    def __init__(self, session: aiohttp.ClientSession, tokens: ReadTokens, asking: Asking) -> None:
        self._session = session
        self._tokens = tokens
        self._asking = asking
        self._timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        self._failed = False
        self.others: Sequence[str] = ()

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            await self.read()

    async def read(self) -> None:
        """Ask all others once."""
        others = self.others
        if not others:
            return
        answers = dict(zip(others, await asyncio.gather(*map(self._answer, others)), strict=True))
        found = {url: answer for url, answer in answers.items() if not isinstance(answer, Exception)}
        error = next((answer for answer in answers.values() if isinstance(answer, Exception)), None)
        if error is None or not self._asking.needs_all:
            try:
                self._asking.learn(found)
            except ValueError as wrong:
                error = wrong
        self._log(error)

    def _log(self, error: Exception | None) -> None:
        if error is not None and not self._failed:
            why = str(error) or type(error).__name__
            log.warning("another gateway cannot be read, so %s: %s", self._asking.without, why)
        elif error is None and self._failed:
            log.info("all other gateways are read again; until now %s", self._asking.without)
        self._failed = error is not None

    async def _answer(self, url: str) -> Any:
        """The document, or the error for which there is none."""
        try:
            return await self._document(url)
        except (ValueError, *ERRORS) as error:
            return error

    async def _document(self, url: str) -> Any:
        token = self._tokens.of_release()
        headers, where = {"Authorization": f"Bearer {token}"} if token else {}, url + self._asking.path(url)
        async with self._session.get(where, headers=headers, timeout=self._timeout, allow_redirects=False) as response:
            body = await read_at_most(response.content, MAX_BYTES + 1)
            if response.status != 200 or len(body) > MAX_BYTES:
                raise ValueError(f"{url} answers with status {response.status} and {len(body)} bytes")
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise ValueError(f"{url} answers without JSON") from error

"""Gateways read from each other what was used of the rates: `GET /rates` on the admin port, with the token of the release."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

import aiohttp
import orjson

from sluice import contract
from sluice_gateway.keys.fleet_rates import BadDocument, FleetRates
from sluice_gateway.replicas.answers import ERRORS, read_at_most
from sluice_gateway.replicas.read_access import ReadTokens

PERIOD_SECONDS: Final = 0.5
TIMEOUT_SECONDS: Final = 1.0
MAX_BYTES: Final = 4 * 1024 * 1024  # 30,000 tenants within three seconds

log = logging.getLogger("sluice.gateway")


class RateExchange:
    """Reads the other gateways' documents while its task runs. `others`: base URLs of their admin ports."""

    def __init__(self, session: aiohttp.ClientSession, rates: FleetRates, tokens: ReadTokens) -> None:
        self._session = session
        self._rates = rates
        self._tokens = tokens
        self._timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        self._failed = False
        self.others: Sequence[str] = ()

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            await self.read()

    async def read(self) -> None:
        """Read all others once. Without one of them nothing is learned: this gateway then grants its share of each rate."""
        if not self.others:
            return
        try:
            self._rates.learn(await asyncio.gather(*map(self._document, self.others)))
        except (BadDocument, *ERRORS) as error:
            if not self._failed:
                why = str(error) or type(error).__name__
                log.warning("another gateway's use of the rates cannot be read, each grants its share: %s", why)
            self._failed = True
            return
        if self._failed:
            log.info("the other gateways' use of the rates is read again")
        self._failed = False

    async def _document(self, url: str) -> Any:
        token = self._tokens.of_release()
        headers, where = {"Authorization": f"Bearer {token}"} if token else {}, url + contract.PATH_RATES
        async with self._session.get(where, headers=headers, timeout=self._timeout, allow_redirects=False) as response:
            body = await read_at_most(response.content, MAX_BYTES + 1)
            if response.status != 200 or len(body) > MAX_BYTES:
                raise BadDocument(f"{url} answers with status {response.status} and {len(body)} bytes")
        try:
            return orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise BadDocument(f"{url} answers without JSON") from error

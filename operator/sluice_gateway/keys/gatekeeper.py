"""Verifies keys and counts rates for a whole fleet, by the same key file as the engines'.

Of several gateways each grants its share of what all of them have left of a rate. With a token that the engines know, a
request goes to an engine with its tenant's name instead of its key, and the engine counts no rates of its own.
"""

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from sluice import contract
from sluice.auth.access import AccessControl
from sluice.auth.caller import CALLER, Caller
from sluice.auth.gateway_token import GatewayToken, TokenInvalid
from sluice.auth.key_file import ApiKey, parse
from sluice.auth.key_store import ANONYMOUS, KeyStore
from sluice.httpapi.errors import ApiError
from sluice.mounted_files import FileFault, MountedFiles, Reload, follow
from sluice_gateway.headers import ENGINE_IDENTITY
from sluice_gateway.keys.fleet_rates import FleetRates

# Engines need no key for them either: they are for load balancers and tools.
OPEN_PATHS: Final = frozenset(contract.READ_PATHS) - {contract.PATH_MODELS}

log = logging.getLogger("sluice.gateway")


class KeysInvalid(ValueError):
    """The files or their combination cannot be used. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class KeyOptions:
    """`gateways`: how many share the rates, until the cluster says it. `engine_token`: file with the token that the engines
    know."""

    api_keys: Path | None = None
    engine_token: Path | None = None
    gateways: int = 1


class Gatekeeper:
    """Identifies the caller of each request."""

    def __init__(self, options: KeyOptions, on_refused: Callable[[ApiError], None] = lambda _: None) -> None:
        """Raises KeysInvalid."""
        if options.engine_token is not None and options.api_keys is None:
            raise KeysInvalid(
                "--engine-token-file needs --api-keys-file: engines would take requests whose keys were not verified."
            )
        self._files = None if options.api_keys is None else MountedFiles((options.api_keys,), _store)
        try:
            store = None if self._files is None else self._files.load()
            self._token = None if options.engine_token is None else GatewayToken(options.engine_token)
        except FileFault as error:
            raise KeysInvalid(f"--api-keys-file: {error}") from error
        except TokenInvalid as error:
            raise KeysInvalid(f"--engine-token-file: {error}") from error
        self._access = AccessControl(store, on_refused, share=1.0 / options.gateways)
        self._store = store
        self.rates = FleetRates(self._access.rates, self._key_of, time.monotonic)
        self.verifies = store is not None

    def identify(self, request: web.BaseRequest) -> Caller:
        """The request's caller; a request that costs work is counted. Raises Unauthorized, RateLimited."""
        if request.rel_url.raw_path in OPEN_PATHS:
            caller = request[CALLER] = Caller(ANONYMOUS, self._access.rates)
            return caller
        caller = self._access.identify(request)
        if request.method == "POST":
            caller.take_request()
        if self._token is not None:
            request[ENGINE_IDENTITY] = {
                contract.HEADER_GATEWAY_TOKEN: self._token.value,
                contract.HEADER_TENANT: caller.tenant,
                contract.HEADER_PRIORITY: str(caller.key.max_priority),
            }
        return caller

    def shared_by(self, gateways: int) -> None:
        """So many gateways share the rates now."""
        self._access.grant(1.0 / gateways)

    async def serve_rates(self, _: web.Request) -> web.StreamResponse:
        """What was used here of the rates, for the other gateways."""
        return web.json_response(self.rates.document())

    async def follow(self) -> None:
        """Put changes of the key file in force, until cancelled."""
        if self._files is None:
            return
        with ThreadPoolExecutor(1) as threads:
            await follow(self._files, self._changed, threads)

    def _changed(self, reload: Reload[KeyStore]) -> None:
        if reload.value is not None:
            self._store = reload.value
            self._access.replace(reload.value)
            log.info("the key file has changed: %d keys are in force", len(reload.value))

    def _key_of(self, tenant: str) -> ApiKey | None:
        return None if self._store is None else self._store.named(tenant)


def _store(contents: tuple[bytes, ...]) -> KeyStore:
    return KeyStore(parse(contents[0]))

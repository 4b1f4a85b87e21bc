"""Access to the data port: every request on a known route passes here before its body is read.

A request without a valid key gets 401, a request for a model that its key may not use 403, and a request beyond its
tenant's rate 429. Behind a gateway an engine takes the tenant from the gateway, if it proves itself by its token; the gateway
has verified the key and counted the rates.
"""

import time
from collections.abc import Callable
from typing import Final

from aiohttp import web

from sluice import contract
from sluice.auth.caller import CALLER, Caller
from sluice.auth.gateway_token import FROM_GATEWAY, GatewayToken, named_key
from sluice.auth.key_file import ApiKey
from sluice.auth.key_store import ANONYMOUS, KeyStore
from sluice.auth.rate_limits import RateLimits
from sluice.httpapi.errors import ApiError, Forbidden, RateLimited, Unauthorized

COSTLY_METHODS: Final = frozenset({"POST"})  # a read of /v1/models needs a key and counts towards no rate


def takes_key_header(path: str) -> bool:
    """True if the key may be in x-api-key, which Anthropic's clients send with messages and reads of models."""
    return path in contract.PATHS_ANTHROPIC or f"{path}/".startswith(f"{contract.PATH_MODELS}/")


class AccessControl:
    """Authorizes requests by the keys in force; without a key file every request belongs to one tenant."""

    def __init__(
        self,
        store: KeyStore | None,
        on_refused: Callable[[ApiError], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        gateway_token: GatewayToken | None = None,
        share: float = 1.0,
    ) -> None:
        """`store` None: no key is needed. `on_refused` is called for each refused request.

        `gateway_token`: of a gateway that may name tenants. `share`: of every tenant's rates that is granted here.
        """
        self._store = store
        self._gateway_token = gateway_token
        self.rates = RateLimits(clock, share)
        self._on_refused = on_refused

    def replace(self, store: KeyStore) -> None:
        """Puts a new key file in force for the next requests. Tenants keep their buckets."""
        self._store = store
        self.rates.keep(store.tenants)

    def grant(self, share: float) -> None:
        """Grants this share of every tenant's rates from now on."""
        self.rates.share = share

    def authorize(self, request: web.BaseRequest, served_name: str) -> None:
        """Attaches the caller to the request. Raises Unauthorized, Forbidden, RateLimited."""
        try:
            caller = self.identify(request)
            if request.method in COSTLY_METHODS:
                caller.check_model(served_name)
                caller.take_request()
        except (Unauthorized, Forbidden, RateLimited) as error:
            self._on_refused(error)
            raise

    def identify(self, request: web.BaseRequest) -> Caller:
        """Attaches the caller to the request, and checks nothing else. Raises Unauthorized."""
        caller = request[CALLER] = Caller(self._key_of(request), self.rates)
        return caller

    def _key_of(self, request: web.BaseRequest) -> ApiKey:
        if self._gateway_token is not None and contract.HEADER_GATEWAY_TOKEN in request.headers:
            self._gateway_token.check(request)
            request[FROM_GATEWAY] = True
            return named_key(request, self._store)
        if self._store is None:
            request[FROM_GATEWAY] = self._gateway_token is None  # without keys, clients are trusted with its headers
            return ANONYMOUS
        given = request.headers.getall("Authorization", [])
        if not given and takes_key_header(request.rel_url.raw_path):
            given = [f"Bearer {key}" for key in request.headers.getall("X-Api-Key", [])]
        key = self._store.find(given)
        if key is None:
            raise Unauthorized(
                "The API key is wrong: no key of this server has its SHA-256. Send one that is in the key file.",
                code="invalid_api_key",
            )
        return key

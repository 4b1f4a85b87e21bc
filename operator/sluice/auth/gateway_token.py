"""The token by which a gateway proves to an engine that it has verified a request's key, and may name its tenant.

Without a valid token the headers that name a tenant and its priority count for nothing.
"""

import hashlib
import hmac
import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from aiohttp import web

from sluice import contract
from sluice.auth.key_file import ApiKey
from sluice.auth.key_store import KeyStore
from sluice.httpapi.errors import Unauthorized

# True for a request whose headers of the gateway count.
FROM_GATEWAY: Final = web.RequestKey("from_gateway", bool)
LEAST_BYTES: Final = 16  # a shorter token could be guessed


class TokenInvalid(ValueError):
    """The token file cannot be used. The message is one sentence."""


class GatewayToken:
    """The token of one file, `value`. The file is read again for a token that does not match, so that it can be replaced."""

    def __init__(self, path: Path) -> None:
        """Raises TokenInvalid."""
        self._path = path
        self.value = ""
        self._digest = self._read()

    def check(self, request: web.BaseRequest) -> None:
        """Raises Unauthorized. The comparison takes constant time over SHA-256 digests."""
        given = request.headers.getall(contract.HEADER_GATEWAY_TOKEN)
        digest = hashlib.sha256(given[0].encode("utf-8", "surrogateescape")).digest()
        if len(given) == 1 and (hmac.compare_digest(self._digest, digest) or self._matches_new(digest)):
            return
        raise Unauthorized(
            f"The {contract.HEADER_GATEWAY_TOKEN} header is not this server's; only its gateway may send it.",
            code="invalid_gateway_token",
        )

    def _matches_new(self, digest: bytes) -> bool:
        try:
            self._digest = self._read()
        except TokenInvalid:  # it is being replaced
            return False
        return hmac.compare_digest(self._digest, digest)

    def _read(self) -> bytes:
        try:
            token = self._path.read_bytes().strip()
        except OSError as error:
            raise TokenInvalid(f"{self._path} cannot be read ({error.strerror}); write the token into it.") from error
        if re.fullmatch(rb"[!-~]*", token) is None:
            raise TokenInvalid(f"{self._path} must hold one line of printable ASCII characters without spaces.")
        if len(token) < LEAST_BYTES:
            raise TokenInvalid(f"{self._path} has a token of {len(token)} bytes; use at least {LEAST_BYTES}.")
        self.value = token.decode()
        return hashlib.sha256(token).digest()


def named_key(request: web.BaseRequest, store: KeyStore | None) -> ApiKey:
    """The entry of the tenant that the gateway names, without rates: the gateway counts them.

    Raises Unauthorized for headers that no gateway sends.
    """
    tenant = request.headers.get(contract.HEADER_TENANT, "")
    priority = request.headers.get(contract.HEADER_PRIORITY, str(contract.MAX_PRIORITY))
    sign, digits = priority[:1] == "-", priority.removeprefix("-")
    if (tenant and contract.KEY_NAME.fullmatch(tenant) is None) or not (digits.isascii() and digits.isdigit()):
        raise Unauthorized("The gateway's headers are malformed; update it.", code="invalid_gateway_token")
    ceiling = min(int(digits[:4]), contract.MAX_PRIORITY) * (-1 if sign else 1)
    known = None if store is None else store.named(tenant)
    key = known or ApiKey(tenant, b"")
    return replace(key, max_priority=ceiling, requests_per_minute=None, tokens_per_minute=None)

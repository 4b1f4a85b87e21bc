"""Finds the API key of a request by the SHA-256 of its bearer token.

A lookup takes the same time for every wrong token, whatever it has in common with a key: what the table compares is a
SHA-256 digest, and nothing about a key follows from how many bits of its digest another token's digest shares.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sluice.auth.key_file import ApiKey
from sluice.httpapi.errors import Unauthorized

# Without a key file every client inside the cluster is served, as one tenant.
ANONYMOUS: Final = ApiKey(name="", digest=b"")


class KeyStore:
    """The keys in force. Immutable: a reload replaces the store, and requests in flight keep their key."""

    def __init__(self, keys: Iterable[ApiKey]) -> None:
        self._keys = {key.digest: key for key in keys}
        self._named = {key.name: key for key in self._keys.values()}

    def __len__(self) -> int:
        """Number of keys."""
        return len(self._keys)

    @property
    def weights(self) -> Mapping[str, float]:
        """Tenant → weight, of the tenants whose weight is not 1."""
        return {key.name: key.weight for key in self._keys.values() if key.weight != 1.0}

    @property
    def tenants(self) -> frozenset[str]:
        """The tenants' names."""
        return frozenset(key.name for key in self._keys.values())

    def named(self, tenant: str) -> ApiKey | None:
        """One of the tenant's keys; None for a tenant that the file does not have."""
        return self._named.get(tenant)

    def find(self, authorization: Sequence[str]) -> ApiKey | None:
        """Returns the key of a request with these Authorization headers; None if the key is unknown.

        Raises Unauthorized without exactly one header of the form `Bearer <key>`.
        """
        scheme, _, token = authorization[0].partition(" ") if len(authorization) == 1 else ("", "", "")
        if scheme.lower() != "bearer" or not token.strip():
            raise Unauthorized(
                "This server needs an API key; send one header Authorization: Bearer <key>.", code="invalid_api_key"
            )
        return self._keys.get(hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).digest())

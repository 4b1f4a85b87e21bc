"""Tokens for reads of the admin ports, each derived from one key, and the check of them.

The key of reads derives from the operator's key, and cannot be turned back into it: who has it reads every admin port of
the release and writes none. An engine's token derives from the key and the uid of its LLMDeployment, so that a token which
users of one namespace can read opens no other namespace's engines. Operator and gateways share the token of the release.
"""

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from aiohttp import web

from sluice import contract

RELEASE: Final = "release"  # in place of a uid
_READS: Final = "reads"
UNAUTHORIZED: Final = (
    "Reads of this port need a token: Authorization: Bearer <token>, or behind a proxy of the API server "
    f"{contract.HEADER_READ_TOKEN}: <token>."
)
CHALLENGE: Final = {"WWW-Authenticate": 'Bearer realm="sluice"'}


def read_key(operator_key: bytes) -> str:
    """Return the key of reads, 64 hex digits: HMAC-SHA256 (RFC 2104) under the operator's key."""
    return _derived(operator_key, _READS)


def read_token(key: str, owner: str) -> str:
    """Return the token for the engines of the LLMDeployment with this uid, or for `RELEASE`; 64 hex digits."""
    return _derived(key.encode(), owner)


def is_read_allowed(request: web.BaseRequest, tokens: Iterable[str]) -> bool:
    """True if the request carries one of the tokens; an empty one matches nothing.

    All tokens are compared, each in constant time over SHA-256 digests.
    """
    given = hashlib.sha256(_given(request)).digest()
    matches = [hmac.compare_digest(hashlib.sha256(token.encode()).digest(), given) for token in tokens if token]
    return any(matches)


class TokenFile:
    """A token in a file that is mounted from a Secret. It is read at each use, so that a new one applies at once."""

    def __init__(self, path: Path | None) -> None:
        """Without a path there is no token."""
        self._path = path

    def value(self) -> str:
        """Return the token; empty while there is none, and then none matches."""
        try:
            return "" if self._path is None else self._path.read_text("utf-8", errors="replace").strip()
        except OSError:
            return ""


def _derived(key: bytes, message: str) -> str:
    return hmac.new(key, message.encode(), hashlib.sha256).hexdigest()


def _given(request: web.BaseRequest) -> bytes:
    """The token of the request; empty without one, and if a header is there twice."""
    values = request.headers.getall("Authorization", [])
    scheme, _, token = values[0].partition(" ") if len(values) == 1 else ("", "", "")
    if scheme.lower() == "bearer":
        return token.strip().encode("utf-8", "surrogateescape")
    others = request.headers.getall(contract.HEADER_READ_TOKEN, [])
    return others[0].strip().encode("utf-8", "surrogateescape") if len(others) == 1 else b""

"""Header handling of the gateway: what is passed on, and what is its own."""

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from typing import Final

from aiohttp import web
from multidict import CIMultiDict, MultiMapping

from sluice import contract

HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_NOT_FORWARDED: Final = HOP_BY_HOP | {"host", "content-length", "expect"}
_KEY_HEADERS: Final = ("Authorization", "x-api-key")
# What engines are told of the caller, beside the gateway's token.
ENGINE_IDENTITY: Final = web.RequestKey("engine_identity", dict[str, str])
LEAST_WAIT: Final = 0.01  # seconds in the gateway that an engine is told of
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._~:/+=@-]{1,128}", re.ASCII)


def forwarded_headers(headers: MultiMapping[str]) -> CIMultiDict[str]:
    """The end-to-end headers, without the hop-by-hop ones that Connection lists (RFC 9110, 7.6.1)."""
    named = {token.strip().lower() for line in headers.getall("Connection", ()) for token in line.split(",")}
    return CIMultiDict(_kept(headers.items(), _NOT_FORWARDED | named))


def engine_headers(
    request: web.BaseRequest, request_id: str, attempt: int, waited_seconds: float = 0.0
) -> CIMultiDict[str]:
    """The headers for an engine. Those with the prefix of Sluice's own come from the gateway only, never from a client.

    With an identity that the engine takes from the gateway, the client's key stays here.
    """
    found = forwarded_headers(request.headers)
    for name in {name for name in found if name.lower().startswith(contract.HEADER_PREFIX)}:
        del found[name]
    identity = request.get(ENGINE_IDENTITY)
    if identity is not None:
        for name in _KEY_HEADERS:
            found.popall(name, None)
        found.update(identity)
    found[contract.HEADER_REQUEST_ID] = request_id
    if waited_seconds >= LEAST_WAIT:
        found[contract.HEADER_WAITED_MS] = str(round(waited_seconds * 1000.0))
    if attempt > 1:
        found[contract.HEADER_ATTEMPT] = str(attempt)
    return found


def request_id_of(headers: Mapping[str, str]) -> str:
    """The client's id of its request if it is short and plain, else a new one."""
    asked = headers.get(contract.HEADER_REQUEST_ID, "")
    return asked if _REQUEST_ID.fullmatch(asked) else os.urandom(16).hex()


def tenant_of(headers: Mapping[str, str]) -> str:
    """A digest of the client's key, which stands for its tenant; "" without a key."""
    keys = [headers[name] for name in _KEY_HEADERS if name in headers]
    text = repr(keys).encode("utf-8", "surrogateescape")
    return hashlib.blake2b(text, digest_size=16).hexdigest() if keys else ""


def _kept(items: Iterable[tuple[str, str]], dropped: frozenset[str] | set[str]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in items if name.lower() not in dropped]

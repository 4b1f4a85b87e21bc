"""Header handling of the gateway: end-to-end headers and accepted host names."""

from collections.abc import Iterable, Mapping
from typing import Final

from multidict import CIMultiDict

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
LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})


def forwarded_headers(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """The end-to-end headers, without the hop-by-hop ones that Connection lists (RFC 9110, 7.6.1)."""
    named = {token.strip().lower() for token in headers.get("Connection", "").split(",")}
    return CIMultiDict(_kept(headers.items(), _NOT_FORWARDED | named))


def _kept(items: Iterable[tuple[str, str]], dropped: frozenset[str] | set[str]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in items if name.lower() not in dropped]


def host_name(host: str) -> str:
    """The name in a Host header, without its port."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()

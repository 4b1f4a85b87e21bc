"""Checks the Host header, which must not change what a request may do.

A port on the loopback interface accepts only loopback names: a web page may point its own name at 127.0.0.1 (DNS rebinding).
"""

import re
from functools import lru_cache
from typing import Final

from aiohttp import HttpVersion10, web

from sluice.httpapi.errors import BadRequest

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
CACHED_HOSTS: Final = 64  # few names lead to one server
_HOST: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\])(:\d{1,5})?", re.ASCII)


def check_host(request: web.BaseRequest, *, loopback: bool) -> None:
    """Raises BadRequest, also for HTTP/0.9, whose requests have no headers."""
    if request.version < HttpVersion10:
        raise BadRequest("The request line names no version; send HTTP/1.1.")
    hosts = request.headers.getall("Host", [])
    name = _name_in(hosts[0]) if len(hosts) == 1 else None
    if name is None:
        raise BadRequest("The Host header is missing or malformed.", code="invalid_host")
    if loopback and name not in LOOPBACK:
        raise BadRequest("This server listens on this machine only and answers to its names.", code="invalid_host")


@lru_cache(CACHED_HOSTS)
def _name_in(host: str) -> str | None:
    """The name in a Host header, in lower case; None if it is malformed."""
    found = _HOST.fullmatch(host)
    return None if found is None else found["name"].lower()

"""Which handler of a path answers a method."""

from collections.abc import Mapping
from typing import TypeVar

from sluice.httpapi.errors import MethodNotAllowed

_H = TypeVar("_H")


def handler_of(methods: Mapping[str, _H], method: str) -> _H:
    """Return the handler. HEAD has that of GET, and aiohttp leaves the body out. Raises MethodNotAllowed."""
    handler = methods.get("GET" if method == "HEAD" else method)
    if handler is None:
        allowed = ", ".join([*methods, *(["HEAD"] if "GET" in methods else [])])
        raise MethodNotAllowed(f"This path allows {allowed}.", allowed)
    return handler

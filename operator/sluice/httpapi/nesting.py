"""Bounds the nesting of parsed JSON, because what renders, checks or writes it later is recursive."""

from typing import Any, Final

from sluice.httpapi.errors import BadRequest

MAX_DEPTH: Final = 248  # orjson writes 254 levels, and an answer may repeat a part of the body some levels down


def check_depth(value: Any, param: str | None = None) -> None:
    """Raises BadRequest if lists and objects are nested deeper than MAX_DEPTH."""
    level = _inner(value)
    for _ in range(MAX_DEPTH):
        if not level:
            return
        level = [entry for node in level for entry in _inner(node)]
    raise too_deep(param)


def too_deep(param: str | None = None) -> BadRequest:
    """The error for what is nested deeper than MAX_DEPTH, or than a parser goes."""
    return BadRequest(
        f"{param or 'The body'} is nested deeper than {MAX_DEPTH} levels; send it flatter.",
        param=param,
        code="invalid_value",
    )


def _inner(node: Any) -> list[Any]:
    """The lists and objects directly within a value."""
    if isinstance(node, list) and {dict, list}.isdisjoint(map(type, node)):  # token ids: there may be millions
        return []
    entries = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [entry for entry in entries if isinstance(entry, dict | list)]

"""Writes literals of the Common Expression Language (CEL), in which the API server evaluates rules."""

from collections.abc import Iterable


def cel_list(words: Iterable[str]) -> str:
    """Return a list of strings as a CEL literal. The words must hold no quotes."""
    return "[" + ", ".join(f"'{word}'" for word in words) + "]"

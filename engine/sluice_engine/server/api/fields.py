"""Reads single fields of a JSON object strictly: a bool is not a number, and "5" and 1.5 are not integers.

Each reader returns the value, or the default if the field is absent or null. It raises BadRequest with `param`.
"""

from collections.abc import Collection
from typing import Any, Final

from sluice_engine.server.errors import BadRequest

Object = dict[str, Any]
MAX_INTEGER: Final = 2**63 - 1


def invalid(param: str, sentence: str) -> BadRequest:
    """Returns a BadRequest about one field."""
    return BadRequest(f"{param} {sentence}.", param=param, code="invalid_value")


def integer(source: Object, name: str, low: int, high: int, default: int | None = None) -> int | None:
    """Returns an integer in [low, high]. Raises BadRequest."""
    value = source.get(name)
    if value is None:
        return default
    if type(value) is not int or not low <= value <= high:
        raise invalid(name, f"must be an integer between {low} and {high}")
    return value


def number(source: Object, name: str, low: float, high: float, default: float, *, above: bool = False) -> float:
    """Returns a number in [low, high], or in (low, high] with `above`. Raises BadRequest."""
    value = source.get(name)
    if value is None:
        return default
    if type(value) not in (int, float) or not (low < value if above else low <= value) or not value <= high:
        edge = "above" if above else "at least"
        raise invalid(name, f"must be a number {edge} {low:g} and at most {high:g}")
    return float(value)


def boolean(source: Object, name: str, default: bool = False) -> bool:
    """Returns true or false. Raises BadRequest."""
    value = source.get(name)
    if value is None:
        return default
    if type(value) is not bool:
        raise invalid(name, "must be true or false")
    return value


def text(source: Object, name: str, longest: int) -> str | None:
    """Returns a string of at most `longest` characters. Raises BadRequest."""
    value = source.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > longest:
        raise invalid(name, f"must be a string of at most {longest} characters")
    return value


def choice(source: Object, name: str, allowed: tuple[str, ...]) -> str | None:
    """Returns one of the allowed strings. Raises BadRequest."""
    value = source.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or value not in allowed:
        raise invalid(name, f"must be one of {', '.join(allowed)}")
    return value


def strings(source: Object, name: str, most: int, longest: int) -> tuple[str, ...]:
    """Returns one string or a list of up to `most`, each of 1 to `longest` characters, as a tuple. Raises BadRequest."""
    value = source.get(name)
    if value is None:
        return ()
    entries = [value] if isinstance(value, str) else value
    if not isinstance(entries, list) or not 1 <= len(entries) <= most:
        raise invalid(name, f"must be a string or a list of 1 to {most} strings")
    for entry in entries:
        if not isinstance(entry, str) or not 1 <= len(entry) <= longest:
            raise invalid(name, f"must hold strings of 1 to {longest} characters")
    return tuple(entries)


def only(source: Object, known: Collection[str], prefix: str = "") -> None:
    """Raises BadRequest if the object has a field that is not in `known`: a misspelt field must not be ignored."""
    for name in source:
        if name not in known:
            printable = name if len(name) <= 64 and name.isprintable() else "field"
            raise BadRequest(
                f"Unknown field {prefix}{printable}.",
                param=f"{prefix}{printable}" if printable == name else None,
                code="unknown_parameter",
            )

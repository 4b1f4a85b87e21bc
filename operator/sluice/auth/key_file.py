"""Parses the key file: a YAML list with one entry per API key. Each fault is one sentence that names its entry.

No sentence quotes a value other than a name: a user may have put the key itself where its hash belongs.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

import msgspec

from sluice import contract
from sluice.contract import MAX_PRIORITY

MAX_BYTES: Final = 4 * 1024 * 1024  # a Secret holds at most 1 MiB, about 10,000 keys
MAX_RATE: Final = 10**9
_EXAMPLE: Final = "{name: search, sha256: <64 hex digits>}"

_TYPES: Final = {"object": "a mapping", "array": "a list", "str": "text", "int": "a whole number", "float": "a number"}

Rate = Annotated[int, msgspec.Meta(ge=1, le=MAX_RATE)]


class KeyFileInvalid(ValueError):
    """The key file cannot be used. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One entry of the key file. A request is served for the tenant `name`. None means unlimited."""

    name: str
    digest: bytes  # SHA-256 of the key
    models: frozenset[str] | None = None  # served names; None: all
    max_priority: int = MAX_PRIORITY
    weight: float = 1.0  # share of the service under contention, relative to the other tenants
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


class _Priority(msgspec.Struct, forbid_unknown_fields=True):
    max: Annotated[int, msgspec.Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]


class _Entry(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """An entry as it is written."""

    name: Annotated[str, msgspec.Meta(pattern=rf"^{contract.KEY_NAME.pattern}\Z")]
    sha256: str
    models: Annotated[tuple[str, ...], msgspec.Meta(max_length=1000)] | None = None
    priority: _Priority | None = None
    weight: Annotated[float, msgspec.Meta(ge=0.001, le=1000.0)] = 1.0
    requests_per_minute: Rate | None = None
    tokens_per_minute: Rate | None = None


_FIELDS: Final = msgspec.structs.fields(_Entry)


def parse(content: bytes) -> tuple[ApiKey, ...]:
    """Returns the keys in the order of the file; an empty list admits no client. Raises KeyFileInvalid."""
    if len(content) > MAX_BYTES:
        raise KeyFileInvalid(f"it has more than {MAX_BYTES} bytes")
    try:
        entries = msgspec.yaml.decode(content)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise KeyFileInvalid(f"it is not YAML{_line_of(error)}") from None  # the cause may quote the content
    if not isinstance(entries, list):
        raise KeyFileInvalid(f"it must be a YAML list with one entry per key, such as - {_EXAMPLE}")
    keys = tuple(_key(entry, place) for place, entry in enumerate(entries, 1))
    _check_unique(keys)
    _check_tenants(keys)
    return keys


def _key(value: object, place: int) -> ApiKey:
    where = _place(value, place)
    try:
        entry = msgspec.convert(value, _Entry)
    except msgspec.ValidationError as error:
        fault, _, path = str(error).partition(" - at ")
        field = path.strip("`").removeprefix("$").removeprefix(".")
        raise KeyFileInvalid(f"{where}{field and f', {field}'}: {_in_words(field, fault)}") from None
    return ApiKey(
        name=entry.name,
        digest=_digest(entry.sha256, where),
        models=None if entry.models is None else frozenset(entry.models),
        max_priority=MAX_PRIORITY if entry.priority is None else entry.priority.max,
        weight=entry.weight,
        requests_per_minute=entry.requests_per_minute,
        tokens_per_minute=entry.tokens_per_minute,
    )


def _place(value: object, place: int) -> str:
    name = value.get("name") if isinstance(value, dict) else None
    return f"entry {place} ({name!r})" if isinstance(name, str) and len(name) <= 128 else f"entry {place}"


def _in_words(field: str, fault: str) -> str:
    """The library's message as part of a sentence."""
    if field == "name":
        return f"it must be {contract.KEY_NAME_WORDS}"
    named = re.search("`([^`]*)`", fault)
    if fault.startswith("Object missing") and named is not None:
        return f"it has no {named[1]}"
    if fault.startswith("Object contains unknown") and named is not None:
        return f"{named[1]!r} is not a field; the fields are {', '.join(each.encode_name for each in _FIELDS)}"
    words = re.sub("`([a-z]+)[^`]*`", lambda found: _TYPES.get(found[1], found[1]), fault)
    return words[:1].lower() + words[1:]


def _digest(text: str, where: str) -> bytes:
    try:
        digest = bytes.fromhex(text)
    except ValueError:
        digest = b""
    if len(digest) != 32 or len(text) != 64:
        raise KeyFileInvalid(
            f"{where}, sha256: it must be the 64 hex digits of the key's SHA-256; `sluice key new NAME` makes a key "
            "and prints its entry"
        )
    return digest


def _check_unique(keys: Iterable[ApiKey]) -> None:
    seen: dict[bytes, int] = {}
    for place, key in enumerate(keys, 1):
        if key.digest in seen:
            raise KeyFileInvalid(f"entries {seen[key.digest]} and {place} have the same sha256; remove one of them")
        seen[key.digest] = place


def _check_tenants(keys: Sequence[ApiKey]) -> None:
    """Entries of one name are keys of one tenant, so that a key can be replaced without an outage."""
    first: dict[str, tuple[int, ApiKey]] = {}
    for place, key in enumerate(keys, 1):
        before, other = first.setdefault(key.name, (place, key))
        if replace(key, digest=other.digest) != other:
            raise KeyFileInvalid(
                f"entries {before} and {place} are both named {key.name!r} and differ in more than sha256; entries of one "
                "name are keys of one tenant"
            )


def _line_of(error: BaseException) -> str:
    found = re.search(r"line \d+", str(error))
    return "" if found is None else f" ({found[0]})"

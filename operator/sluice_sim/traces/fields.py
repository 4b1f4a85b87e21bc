"""Reading one line's values strictly: each fault names the line, the column and what was expected."""

import csv
import gzip
import io
import json
import math
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO

from sluice_sim.traces.arrival import BadTrace

MOST_TOKENS: Final = 10_000_000


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """The file as text, unpacked where it ends in .gz. Raises BadTrace for what is no text; OSError where it cannot be
    opened."""
    with path.open("rb") as raw:
        packed = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
        try:
            yield io.TextIOWrapper(packed, encoding="utf-8", newline="")
        except (UnicodeDecodeError, gzip.BadGzipFile, zlib.error, EOFError, csv.Error) as error:
            raise BadTrace(f"{path} is no trace in text: {error}") from error


def table(lines: Iterator[str], header: Sequence[str], wanted: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """(line number, the wanted columns' texts) of a CSV whose header was already read. Empty lines are passed over."""
    places = [header.index(name) for name in wanted]
    rows = csv.reader(lines)
    for row in rows:
        line = rows.line_num + 1
        if not row:
            continue
        if len(row) != len(header):
            raise BadTrace(f"line {line}: expected {len(header)} columns, found {len(row)}")
        yield line, [row[place] for place in places]


def objects(lines: Iterator[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of a file with one JSON object per line. Empty lines are passed over."""
    for line, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            value = json.loads(text)
        except ValueError as error:
            raise BadTrace(f"line {line}: expected a JSON object, found {shown(text.strip())}") from error
        if not isinstance(value, dict):
            raise BadTrace(f"line {line}: expected a JSON object, found {shown(text.strip())}")
        yield line, value


def tokens_of(text: str, line: int, column: str) -> int:
    """A CSV column with a number of tokens ≥ 1."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 8 and 1 <= int(text) <= MOST_TOKENS):
        raise BadTrace(f"line {line}, column {column}: expected a whole number of tokens ≥ 1, found {shown(text)}")
    return int(text)


def number_of(text: str, line: int, column: str, unit: str) -> float:
    """A CSV column with a finite number ≥ 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise BadTrace(f"line {line}, column {column}: expected {unit} ≥ 0, found {shown(text)}")
    return value


def field(value: dict[str, Any], name: str, line: int, what: str, least: float = 0.0) -> float:
    """A JSON field with a finite number of at least `least`; `what` says so in words."""
    found = value.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float) or not least <= found < math.inf:
        raise BadTrace(f"line {line}, field {name}: expected {what}, found {shown(json.dumps(found))}")
    return found


def tokens_field(value: dict[str, Any], name: str, line: int, least: int = 1) -> int:
    """A JSON field with a whole number of tokens."""
    what = f"a whole number of tokens ≥ {least}"
    found = field(value, name, line, what, least)
    if not isinstance(found, int) or found > MOST_TOKENS:
        raise BadTrace(f"line {line}, field {name}: expected {what}, found {shown(json.dumps(found))}")
    return found


def shown(text: str) -> str:
    """A piece of the file as it may stand in a sentence."""
    return repr(text if len(text) <= 40 else f"{text[:40]}…")

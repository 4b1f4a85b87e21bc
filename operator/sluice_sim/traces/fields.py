"""Strict parsing of the values of one line. Each error names the line, the column and the expected value."""

import codecs
import csv
import gzip
import io
import json
import math
import re
import reprlib
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO

from sluice_sim.traces.arrival import BadTrace

MOST_TOKENS: Final = 10_000_000
_NO_SPACE: Final = re.compile(r"\S")
MOST_SECONDS: Final = 366 * 86_400.0  # maximum length of a trace: later times have another unit or count from 1970


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """Open a trace as text: unpacked if its name ends in .gz, and without a UTF-8 byte order mark.

    A BadTrace raised inside the block gets the name of the file. Raises BadTrace if the file is not text, OSError if
    it cannot be opened."""
    with path.open("rb") as raw:
        packed = _unpacked(raw, path)
        try:
            if packed.peek(len(codecs.BOM_UTF8)).startswith(codecs.BOM_UTF8):
                packed.read(len(codecs.BOM_UTF8))
            yield io.TextIOWrapper(packed, encoding="utf-8", newline="")
        except BadTrace as error:
            raise error.of(path) from error
        except UnicodeDecodeError as error:
            raise BadTrace(_undecodable(path), path) from error
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise BadTrace(f"it is no trace in text: {error}", path) from error


def _unpacked(raw: io.BufferedReader, path: Path) -> gzip.GzipFile | io.BufferedReader:
    return gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw


def _undecodable(path: Path) -> str:
    """A sentence that names the line without valid UTF-8. The decoder's error gives only a position in its buffer."""
    with path.open("rb") as raw:
        for line, content in enumerate(_unpacked(raw, path), start=1):
            try:
                content.decode()
            except UnicodeDecodeError as error:
                return f"line {line} is no trace in text: expected UTF-8, found the byte 0x{content[error.start]:02x}"
    return "it is no trace in text: expected UTF-8"


def table(lines: Iterator[str], header: Sequence[str], wanted: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """(line number, texts of the columns `wanted`) of a CSV whose header was already read. Empty lines are skipped.

    Raises BadTrace for a line with another number of columns."""
    places = [header.index(name) for name in wanted]
    rows = csv.reader(lines)
    while (row := _row(rows)) is not None:
        line = rows.line_num + 1
        if not row:
            continue
        if len(row) != len(header):
            raise BadTrace(f"line {line}: expected {len(header)} columns, found {len(row)}")
        yield line, [row[place] for place in places]


def first_row(text: str) -> list[str]:
    """The column names of a CSV, from its first line. Raises BadTrace."""
    return _row(csv.reader([text]), before=0) or []


def _row(rows: Any, before: int = 1) -> list[str] | None:
    """The next row of a csv.reader, None at its end. `before`: lines read before the csv.reader. Raises BadTrace."""
    try:
        row: list[str] | None = next(rows, None)
    except csv.Error as error:
        raise BadTrace(f"line {rows.line_num + before}: expected columns of a CSV, found that {error}") from error
    return row


def objects(lines: Iterator[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of a file with one JSON object per line. Empty lines are skipped. Raises BadTrace."""
    for line, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:  # RecursionError: brackets nested too deeply
            raise BadTrace(f"line {line}: expected a JSON object, found {shown(text.strip())}") from error
        if not isinstance(value, dict):
            raise BadTrace(f"line {line}: expected a JSON object, found {shown(text.strip())}")
        yield line, value


def documents(text: str) -> list[Any]:
    """The JSON documents of a text, one after the other with or without space between them. Raises BadTrace."""
    decoder, found, at = json.JSONDecoder(), list[Any](), _after_space(text, 0)
    while at < len(text):
        try:
            value, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            rest = text[error.pos :].strip() or "the end of the file"
            raise BadTrace(f"line {error.lineno}, column {error.colno}: expected JSON, found {shown(rest)}") from error
        except (ValueError, RecursionError) as error:  # a number of too many digits, or brackets nested too deeply
            line = text.count("\n", 0, at) + 1
            raise BadTrace(f"line {line}: expected JSON, found {shown(text[at:])}") from error
        found.append(value)
        at = _after_space(text, end)
    return found


def _after_space(text: str, at: int) -> int:
    """The position of the first character from `at` on that is no space."""
    found = _NO_SPACE.search(text, at)
    return len(text) if found is None else found.start()


def tokens_of(text: str, line: int, column: str) -> int:
    """Parse a CSV value as a number of tokens, 1 to MOST_TOKENS. Raises BadTrace."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 8 and 1 <= int(text) <= MOST_TOKENS):
        raise BadTrace(f"line {line}, column {column}: expected a whole number of tokens ≥ 1, found {shown(text)}")
    return int(text)


def number_of(text: str, line: int, column: str, unit: str, most: float) -> float:
    """Parse a CSV value as a number from 0 to `most`. Raises BadTrace."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= most:
        expected = _bounded(f"{unit} ≥ 0", value, most)
        raise BadTrace(f"line {line}, column {column}: expected {expected}, found {shown(text)}")
    return value


def field(value: dict[str, Any], name: str, line: int | str, what: str, most: float, least: float = 0.0) -> float:
    """A JSON field with a number from `least` to `most`. `what` describes it, without `most`. Raises BadTrace.

    `line` is the number of the line, or words for another place such as `line 3, request 2`."""
    found = value.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float) or not least <= found <= most:
        raise BadTrace(
            f"{_place(line)}, field {name}: expected {_bounded(what, found, most)}, found {shown(as_json(found))}"
        )
    return found


def _place(line: int | str) -> str:
    return f"line {line}" if isinstance(line, int) else line


def _bounded(what: str, found: object, most: float) -> str:
    """The description `what`, with the upper bound if the value exceeds it."""
    return f"{what} and at most {most:.0f}" if isinstance(found, int | float) and found > most else what


def tokens_field(value: dict[str, Any], name: str, line: int | str, least: int = 1) -> int:
    """A JSON field with a whole number of tokens, `least` to MOST_TOKENS. Raises BadTrace."""
    what = f"a whole number of tokens ≥ {least}"
    found = field(value, name, line, what, MOST_TOKENS, least)
    if not isinstance(found, int):
        raise BadTrace(f"{_place(line)}, field {name}: expected {what}, found {shown(as_json(found))}")
    return found


def as_json(found: object) -> str:
    """A value as JSON for an error message; lists and objects are abbreviated, whatever their depth."""
    return reprlib.repr(found) if isinstance(found, list | dict) else json.dumps(found)


def shown(text: str) -> str:
    """A quoted piece of the file for an error message, cut to 40 characters."""
    return repr(text if len(text) <= 40 else f"{text[:40]}…")

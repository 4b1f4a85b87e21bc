"""Reading one line's values strictly: each fault names the line, the column and what was expected."""

import codecs
import csv
import gzip
import io
import json
import math
import reprlib
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO

from sluice_sim.traces.arrival import BadTrace

MOST_TOKENS: Final = 10_000_000
MOST_SECONDS: Final = 366 * 86_400.0  # a trace's length: times beyond are in another unit, or count from 1970


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """The file as text, unpacked where it ends in .gz, without the mark that some editors put before UTF-8. What is
    wrong with it is said with its name. Raises BadTrace for what is no text; OSError where it cannot be opened."""
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
    """Which line is no UTF-8: the decoder knows only where in its own buffer it stopped."""
    with path.open("rb") as raw:
        for line, content in enumerate(_unpacked(raw, path), start=1):
            try:
                content.decode()
            except UnicodeDecodeError as error:
                return f"line {line} is no trace in text: expected UTF-8, found the byte 0x{content[error.start]:02x}"
    return "it is no trace in text: expected UTF-8"


def table(lines: Iterator[str], header: Sequence[str], wanted: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """(line number, the wanted columns' texts) of a CSV whose header was already read. Empty lines are passed over."""
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
    """The names of a CSV's columns."""
    return _row(csv.reader([text]), before=0) or []


def _row(rows: Any, before: int = 1) -> list[str] | None:
    """The next row of a csv.reader, None at its end; `before`: lines that were read without it."""
    try:
        row: list[str] | None = next(rows, None)
    except csv.Error as error:
        raise BadTrace(f"line {rows.line_num + before}: expected columns of a CSV, found that {error}") from error
    return row


def objects(lines: Iterator[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of a file with one JSON object per line. Empty lines are passed over."""
    for line, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:  # the second: brackets nested beyond measure
            raise BadTrace(f"line {line}: expected a JSON object, found {shown(text.strip())}") from error
        if not isinstance(value, dict):
            raise BadTrace(f"line {line}: expected a JSON object, found {shown(text.strip())}")
        yield line, value


def tokens_of(text: str, line: int, column: str) -> int:
    """A CSV column with a number of tokens ≥ 1."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 8 and 1 <= int(text) <= MOST_TOKENS):
        raise BadTrace(f"line {line}, column {column}: expected a whole number of tokens ≥ 1, found {shown(text)}")
    return int(text)


def number_of(text: str, line: int, column: str, unit: str, most: float) -> float:
    """A CSV column with a number from 0 to `most`."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= most:
        expected = _bounded(f"{unit} ≥ 0", value, most)
        raise BadTrace(f"line {line}, column {column}: expected {expected}, found {shown(text)}")
    return value


def field(value: dict[str, Any], name: str, line: int, what: str, most: float, least: float = 0.0) -> float:
    """A JSON field with a number from `least` to `most`; `what` says so in words, but for the most."""
    found = value.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float) or not least <= found <= most:
        raise BadTrace(
            f"line {line}, field {name}: expected {_bounded(what, found, most)}, found {shown(as_json(found))}"
        )
    return found


def _bounded(what: str, found: object, most: float) -> str:
    """What was expected, with the upper bound where that is what was missed."""
    return f"{what} and at most {most:.0f}" if isinstance(found, int | float) and found > most else what


def tokens_field(value: dict[str, Any], name: str, line: int, least: int = 1) -> int:
    """A JSON field with a whole number of tokens."""
    what = f"a whole number of tokens ≥ {least}"
    found = field(value, name, line, what, MOST_TOKENS, least)
    if not isinstance(found, int):
        raise BadTrace(f"line {line}, field {name}: expected {what}, found {shown(as_json(found))}")
    return found


def as_json(found: object) -> str:
    """A value as the file may have it; of lists and objects only their beginning, however deep they are."""
    return reprlib.repr(found) if isinstance(found, list | dict) else json.dumps(found)


def shown(text: str) -> str:
    """A piece of the file as it may stand in a sentence."""
    return repr(text if len(text) <= 40 else f"{text[:40]}…")

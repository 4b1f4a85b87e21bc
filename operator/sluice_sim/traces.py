"""Traces: who asked when, for how much. Read strictly: a bad line is named, never skipped."""

import csv
import gzip
import io
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final, TextIO

COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOST_TOKENS: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request: seconds since the trace began, and its lengths in tokens."""

    at: float
    prompt: int
    output: int


class BadTrace(ValueError):
    """The trace cannot be read. The message names line and column and what was expected."""


def read_trace(path: Path, until: float | None = None) -> tuple[Arrival, ...]:
    """A CSV of the Azure LLM inference format (TIMESTAMP, ContextTokens, GeneratedTokens), plain or .gz, up to
    `until` seconds after its first line. Raises BadTrace; OSError where the file cannot be opened."""
    with path.open("rb") as raw, _text(raw, path.suffix == ".gz") as file:
        try:
            arrivals = tuple(_arrivals(file, until))
        except (UnicodeDecodeError, gzip.BadGzipFile, zlib.error, EOFError, csv.Error) as error:
            raise BadTrace(f"{path} is no CSV text: {error}") from error
    if not arrivals:
        raise BadTrace(f"{path} has no request: after the line {','.join(COLUMNS)} at least one is expected")
    return arrivals


def poisson(rate: float, seconds: float, prompt: int, output: int, seed: int) -> tuple[Arrival, ...]:
    """Arrivals at a constant mean rate; prompts of one length, outputs exponential around their mean."""
    rng, at, arrivals = random.Random(seed), 0.0, []
    while (at := at + rng.expovariate(rate)) < seconds:
        arrivals.append(Arrival(at, prompt, max(1, round(rng.expovariate(1.0 / output)))))
    return tuple(arrivals)


def _text(raw: BinaryIO, packed: bool) -> TextIO:
    if packed:
        return io.TextIOWrapper(gzip.GzipFile(fileobj=raw), encoding="utf-8", newline="")
    return io.TextIOWrapper(raw, encoding="utf-8", newline="")


def _arrivals(file: TextIO, until: float | None) -> Iterator[Arrival]:
    rows = csv.reader(file)
    header = next(rows, [])
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise BadTrace(
            f"line 1: column {missing[0]} is missing; expected {','.join(COLUMNS)}, found {_shown(','.join(header))}"
        )
    places = [header.index(name) for name in COLUMNS]
    first: datetime | None = None
    last = 0.0
    for row in rows:
        line = rows.line_num
        if not row:
            continue
        if len(row) != len(header):
            raise BadTrace(f"line {line}: expected {len(header)} columns, found {len(row)}")
        stamp, prompt, output = (row[place] for place in places)
        moment = _moment(stamp, line)
        first = moment if first is None else first
        try:
            at = (moment - first).total_seconds()
        except TypeError as error:
            raise BadTrace(f"line {line}, column {COLUMNS[0]}: expected a time zone on all lines or on none") from error
        if at < last:
            raise BadTrace(f"line {line}, column {COLUMNS[0]}: expected times in order, {_shown(stamp)} is earlier")
        last = at
        if until is not None and at >= until:
            return
        yield Arrival(at, _tokens(prompt, line, COLUMNS[1]), _tokens(output, line, COLUMNS[2]))


def _moment(text: str, line: int) -> datetime:
    whole, _, fraction = text.partition(".")
    try:  # Azure writes seven fractional digits, Python reads six
        return datetime.fromisoformat(f"{whole}.{fraction[:6]}" if fraction.isdecimal() else text)
    except ValueError as error:
        raise BadTrace(
            f"line {line}, column {COLUMNS[0]}: expected a time like 2023-11-16 18:15:46.68, found {_shown(text)}"
        ) from error


def _tokens(text: str, line: int, column: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 8 and 1 <= int(text) <= MOST_TOKENS):
        raise BadTrace(f"line {line}, column {column}: expected a whole number of tokens ≥ 1, found {_shown(text)}")
    return int(text)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}…")

"""From a file to arrivals: the first line says which of the known formats it is."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Final, TextIO

from sluice_sim.traces import azure, lengths, servegen
from sluice_sim.traces.arrival import Arrival, BadTrace
from sluice_sim.traces.fields import opened, shown
from sluice_sim.traces.jsonl import jsonl

KNOWN: Final = (azure.COLUMNS, servegen.COLUMNS, lengths.COLUMNS)


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of a trace, and what it does not say itself. Seconds, requests per second."""

    start: float = 0.0
    seconds: float | None = None
    rate: float | None = None  # where the trace has no times (lengths only) or is thinned to a mean (ServeGen)
    lengths: Path | None = None  # ServeGen's second file
    seed: int = 0


def read_trace(path: Path, part: Part | None = None) -> tuple[Arrival, ...]:
    """The arrivals of a trace, counted from the part's start. Raises BadTrace; OSError where a file cannot be opened."""
    part = part or Part()
    with opened(path) as file:
        arrivals = tuple(_arrivals(file, path, part))
    if not arrivals:
        raise BadTrace(f"{path} has no request in the part that was asked for: after its first line one is expected")
    return arrivals


def _arrivals(file: TextIO, path: Path, part: Part) -> Iterator[Arrival]:
    first = file.readline()
    if first.lstrip().startswith("{"):
        _refuse(part.rate, "a rate", "says when requests came")
        return _cut(jsonl(_again(first, file), part.seed), part)
    header = next(csv.reader([first]), [])
    if set(azure.COLUMNS) <= set(header):
        _refuse(part.rate, "a rate", "says when requests came")
        return _cut(azure.azure(file, header), part)
    if set(lengths.COLUMNS) <= set(header):
        if part.rate is None or part.seconds is None:
            raise BadTrace(f"{path} says how long requests are, not when they came: give --rate and --seconds with it")
        return lengths.drawn(_some(lengths.vidur(file, header), path), part.rate, part.seconds, part.seed)
    if set(servegen.COLUMNS) <= set(header):
        if part.lengths is None:
            raise BadTrace(f"{path} says when requests came, not how long they are: give --lengths with it")
        rates = servegen.windows(file, header)
        with opened(part.lengths) as other:
            known = servegen.clients(other)
        return servegen.servegen(rates, known, part.seconds, part.start, part.rate, part.seed)
    near = max(KNOWN, key=lambda columns: len(set(columns) & set(header)))
    missing = next(name for name in near if name not in header)
    raise BadTrace(
        f"line 1: column {missing} is missing; expected {','.join(near)} or another known format, "
        f"found {shown(first.strip())}"
    )


def _cut(arrivals: Iterator[Arrival], part: Part) -> Iterator[Arrival]:
    end = None if part.seconds is None else part.start + part.seconds
    for one in takewhile(lambda one: end is None or one.at < end, arrivals):
        if one.at >= part.start:
            yield replace(one, at=one.at - part.start)


def _again(first: str, rest: TextIO) -> Iterator[str]:
    yield first
    yield from rest


def _some(found: tuple[tuple[int, int], ...], path: Path) -> tuple[tuple[int, int], ...]:
    if not found:
        raise BadTrace(f"{path} has no request: after its first line at least one is expected")
    return found


def _refuse(value: object, what: str, why: str) -> None:
    if value is not None:
        raise BadTrace(f"{what} was given, but this trace {why}: leave it out, or scale the load with --scale")

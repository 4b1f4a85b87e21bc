"""Reads a trace file into arrivals. The first line determines which of the known formats it is."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Final, TextIO

from sluice_sim.traces import azure, lengths, servegen, timestamps
from sluice_sim.traces.arrival import Arrival, BadTrace, Load
from sluice_sim.traces.fields import first_row, opened, shown
from sluice_sim.traces.jsonl import json_documents, jsonl

KNOWN: Final = (azure.COLUMNS, timestamps.COLUMNS, servegen.COLUMNS, lengths.COLUMNS)
MOST_SILENCE: Final = 3 * 86_400.0  # longest gap between requests, s: a long weekend, 52,000 decisions
_DOCUMENT: Final = re.compile(r'\s*(\[|\{\s*$|\{\s*"(status"\s*:\s*"(success|error)"|data"|resultType"))')
_SAYS_WHEN: Final = "has arrival times: leave it out, or scale the load with --scale"
_SAYS_LENGTHS: Final = "has request lengths: leave it out"


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a trace to read, and the inputs that its format lacks. Seconds, requests per second."""

    start: float = 0.0
    seconds: float | None = None
    rate: float | None = None  # for a trace without times (lengths only), or to thin a trace to this mean (ServeGen)
    lengths: Path | None = None  # ServeGen's second file, with the lengths
    seed: int = 0
    output_tokens: float = 128.0  # mean output of a request without an output length (AIBrix)


def read_trace(path: Path, part: Part | None = None) -> tuple[Arrival, ...]:
    """The arrivals of a trace, timed from the start of the part.

    Raises BadTrace; OSError if a file cannot be opened."""
    return tuple(read_load(path, part).arrivals)


def read_load(path: Path, part: Part | None = None) -> Load:
    """As `read_trace`, with notes on what is not in the file: drawn arrivals and lengths."""
    part = part or Part()
    with opened(path) as file:
        found = _load(file, part)
        arrivals = tuple(found.arrivals)
        if not arrivals:
            raise BadTrace("the selected part has no request: expected at least one after the first line")
        _no_long_silence(arrivals)
    return Load(arrivals, found.notes)


def _load(file: TextIO, part: Part) -> Load:
    first = file.readline()
    if first.lstrip().startswith(("{", "[")):
        _refuse_additions(part)
        if _whole_document(first):
            return _cut(json_documents(first + file.read(), part.output_tokens, part.seed), part)
        return _cut(jsonl(_again(first, file), part.output_tokens, part.seed), part)
    header = first_row(first)
    for columns, read in ((azure.COLUMNS, _azure), (timestamps.COLUMNS, timestamps.csv_lines)):
        if set(columns) <= set(header):
            _refuse_additions(part)
            return _cut(read(file, header), part)
    return Load(_without_times(file, header, first, part))


def _whole_document(first: str) -> bool:
    """True for a file of whole JSON documents by its first line: a list, an indented object, or Prometheus' answer."""
    return _DOCUMENT.match(first) is not None


def _azure(file: TextIO, header: Sequence[str]) -> Load:
    return Load(azure.azure(file, header))


def _without_times(file: TextIO, header: Sequence[str], first: str, part: Part) -> Iterator[Arrival]:
    """Arrivals drawn for a CSV with lengths alone or with rates alone."""
    if set(lengths.COLUMNS) <= set(header):
        _refuse(part.lengths, "a file of lengths", _SAYS_LENGTHS)
        if part.rate is None or part.seconds is None:
            raise BadTrace("it has request lengths and no arrival times: give --rate and --seconds with it")
        return lengths.drawn(_some(lengths.vidur(file, header)), part.rate, part.seconds, part.seed)
    if set(servegen.COLUMNS) <= set(header):
        if part.lengths is None:
            raise BadTrace("it has request rates and no request lengths: give --lengths with it")
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


def _cut(load: Load, part: Part) -> Load:
    end = None if part.seconds is None else part.start + part.seconds
    before = takewhile(lambda one: end is None or one.at < end, load.arrivals)
    return Load((replace(one, at=one.at - part.start) for one in before if one.at >= part.start), load.notes)


def _again(first: str, rest: TextIO) -> Iterator[str]:
    yield first
    yield from rest


def _some(found: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    if not found:
        raise BadTrace("it has no request: after its first line at least one is expected")
    return found


def _no_long_silence(arrivals: Sequence[Arrival]) -> None:
    times = (0.0, *(one.at for one in arrivals))
    silence, until = max((after - before, after) for before, after in pairwise(times))
    if silence > MOST_SILENCE:
        raise BadTrace(
            f"it has no request from {until - silence:.10g} s to {until:.10g} s: expected one in three days at least; "
            "count its times from its beginning, or take a part of it with --start and --seconds"
        )


def _refuse_additions(part: Part) -> None:
    """Refuse the inputs for traces without times or lengths. Raises BadTrace."""
    _refuse(part.rate, "a rate", _SAYS_WHEN)
    _refuse(part.lengths, "a file of lengths", _SAYS_LENGTHS)


def _refuse(value: object, what: str, why: str) -> None:
    if value is not None:
        raise BadTrace(f"{what} was given, but this trace {why}")

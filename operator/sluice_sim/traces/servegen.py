"""ServeGen traces (Apache-2.0): measured 10-minute request rates per client, and the clients' length distributions.

Within a window the arrivals follow the source's own model: inter-arrival times of the client's Gamma or Weibull shape,
scaled to fill the 600 s. Thinning keeps each request at random, so that a smaller load is as bursty as its part of the
large one. Only clients with published lengths can be replayed.
"""

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter
from typing import Any, Final

from sluice_sim.traces.arrival import Arrival, BadTrace
from sluice_sim.traces.fields import MOST_SECONDS, MOST_TOKENS, as_json, field, number_of, objects, shown, table

COLUMNS: Final = ("client", "t_s", "rate_rps", "arrival", "arg1")
WINDOW: Final = 600.0
MOST_RATE: Final = 10_000.0  # requests per second of one client; each request costs one draw
SHAPES: Final = (0.01, 1e6)  # outside, a Weibull draw is not a number; published shapes are 0.013 to 2,200
Draw = Callable[[random.Random, float, int], list[float]]  # (chance, shape, count) → inter-arrival times of any scale
DRAWS: Final[Mapping[str, Draw]] = {
    "Gamma": lambda rng, shape, count: [rng.gammavariate(shape, 1.0) for _ in range(count)],
    "Weibull": lambda rng, shape, count: [rng.weibullvariate(1.0, shape) for _ in range(count)],
}


@dataclass(frozen=True, slots=True)
class Window:
    """The arrival process of one client in the 600 s from `start`: `rate` in requests per second, `kind` of DRAWS."""

    client: str
    start: float
    rate: float
    kind: str
    shape: float


@dataclass(frozen=True, slots=True)
class Table:
    """A distribution of token counts: values with their cumulative weights."""

    values: tuple[int, ...]
    weights: tuple[float, ...]

    def draw(self, rng: random.Random) -> int:
        """Draw one token count."""
        return self.values[min(bisect_right(self.weights, rng.random() * self.weights[-1]), len(self.values) - 1)]


@dataclass(frozen=True, slots=True)
class Lengths:
    """The length distributions of one client from `start` (s) on."""

    start: float
    prompt: Table
    output: Table


Clients = Mapping[str, Sequence[Lengths]]


def windows(lines: Iterator[str], header: Sequence[str]) -> tuple[Window, ...]:
    """Parse the file of rates. Raises BadTrace."""
    found = []
    for line, (client, start, rate, kind, shape) in table(lines, header, COLUMNS):
        if kind not in DRAWS:
            raise BadTrace(f"line {line}, column arrival: expected Gamma or Weibull, found {shown(kind)}")
        parameter = number_of(shape, line, "arg1", "a shape", SHAPES[1])
        if parameter < SHAPES[0]:
            raise BadTrace(f"line {line}, column arg1: expected a shape > 0, {SHAPES[0]} or more, found {shown(shape)}")
        found.append(
            Window(
                client,
                number_of(start, line, "t_s", "seconds", MOST_SECONDS),
                number_of(rate, line, "rate_rps", "requests per second", MOST_RATE),
                kind,
                parameter,
            )
        )
    return tuple(found)


def clients(lines: Iterator[str]) -> Clients:
    """Parse the file of lengths: per client, in order of time. Raises BadTrace."""
    found: dict[str, list[Lengths]] = {}
    for line, value in objects(lines):
        lengths = Lengths(
            field(value, "t_s", line, "seconds ≥ 0", MOST_SECONDS),
            _table(value, "input_tokens", line),
            _table(value, "output_tokens", line),
        )
        found.setdefault(_name(value, line), []).append(lengths)
    return {name: sorted(rows, key=lambda row: row.start) for name, rows in found.items()}


def servegen(
    rates: Sequence[Window], known: Clients, seconds: float | None, start: float, rate: float | None, seed: int
) -> Iterator[Arrival]:
    """Arrivals in [start, start + seconds), timed from `start`; up to the end of the trace if `seconds` is None.

    `rate` thins the clients with known lengths to this mean (requests per second) over that span. Raises BadTrace if
    their rate is lower, or if no client with known lengths has requests in the span."""
    end = start + seconds if seconds is not None else max((one.start + WINDOW for one in rates), default=0.0)
    used = [one for one in rates if one.client in known and one.start < end and one.start + WINDOW > start]
    if not used:
        raise BadTrace(f"no client with known lengths has requests between {start:g} s and {end:g} s")
    mean = sum(_overlap(one, start, end) * one.rate for one in used) / (end - start)
    if rate is not None and rate > mean:
        raise BadTrace(f"the clients with known lengths have {mean:.3g} requests/s in this span, fewer than {rate:g}")
    keep = 1.0 if rate is None else rate / mean
    grouped: dict[float, list[Window]] = {}
    for one in used:
        grouped.setdefault(one.start, []).append(one)
    for begin in sorted(grouped):
        batch = [arrival for one in grouped[begin] for arrival in _arrivals(one, known[one.client], keep, seed)]
        batch.sort(key=itemgetter(0))
        for at, prompt, output in batch:
            if start <= at < end:
                yield Arrival(at - start, prompt, output)


def _arrivals(window: Window, known: Sequence[Lengths], keep: float, seed: int) -> Iterator[tuple[float, int, int]]:
    """One client's requests in one window as (time, prompt, output): a function of (seed, client, window) alone."""
    rng = random.Random(f"{seed}/{window.client}/{window.start:g}")
    expected = window.rate * WINDOW
    count = int(expected) + (rng.random() < expected - int(expected))
    draw, shape = DRAWS[window.kind], window.shape
    ends = list(accumulate(draw(rng, shape, count)))
    if not ends or ends[-1] <= 0:
        return
    lengths = next((row for row in reversed(known) if row.start <= window.start), known[0])
    scale, chance = WINDOW / ends[-1], rng.random
    shift = chance() * WINDOW  # otherwise the last request of every client would fall on the window's end
    for end in ends:
        if chance() < keep:
            at = window.start + (end * scale + shift) % WINDOW
            yield at, lengths.prompt.draw(rng), lengths.output.draw(rng)


def _name(value: dict[str, Any], line: int) -> str:
    found = value.get("client")
    if not isinstance(found, str | int):
        raise BadTrace(f"line {line}, field client: expected a name or a number, found {shown(as_json(found))}")
    return str(found)


def _overlap(window: Window, start: float, end: float) -> float:
    return max(0.0, min(window.start + WINDOW, end) - max(window.start, start))


def _table(value: dict[str, Any], name: str, line: int) -> Table:
    what = "an object of {tokens: probability}"
    found = value.get(name)
    if not isinstance(found, dict) or not found:
        raise BadTrace(f"line {line}, field {name}: expected {what}, found {shown(as_json(found))}")
    values = []
    for text in found:
        if not (text.isascii() and text.isdecimal() and len(text) <= 8 and int(text) <= MOST_TOKENS):
            raise BadTrace(f"line {line}, field {name}: expected {what}, found {shown(text)} tokens")
        values.append(max(1, int(text)))
    weights = tuple(accumulate(field(found, text, line, f"a probability in {name} ≥ 0", 1e9) for text in found))
    if weights[-1] <= 0:
        raise BadTrace(f"line {line}, field {name}: expected a probability above 0")
    return Table(tuple(values), weights)

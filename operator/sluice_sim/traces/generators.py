"""Generated loads: streams of requests with a rate over time, on and off periods, batches and log-normal lengths.

Every function is pure in its seed, so a load is the same on every machine.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sluice_sim.traces.arrival import Arrival

BATCH_SECONDS: Final = 0.5  # the requests of one batch arrive within this time

Rates = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class LengthRange:
    """Log-normal token counts: the median, the standard deviation of the logarithm, and the largest value.

    A `sigma` of 0 gives equal lengths; 1.5 and more gives a heavy tail."""

    median: float
    sigma: float = 0.0
    most: int = 100_000

    def draw(self, rng: random.Random) -> int:
        """Draw one token count, 1 or more."""
        if not self.sigma:
            return max(1, round(self.median))
        return max(1, min(self.most, round(self.median * math.exp(rng.gauss(0.0, self.sigma)))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Requests of one kind. `rate` has (second, requests per second), linear in between and constant outside."""

    rate: Rates
    prompt: LengthRange
    output: LengthRange
    on_off: tuple[float, float] | None = None  # mean seconds of on and off periods, exponential; silent while off
    batch: float = 1.0  # mean requests of a batch, geometric; `rate` counts requests
    tenant: str = ""


def generated(streams: Sequence[Stream], seconds: float, seed: int) -> tuple[Arrival, ...]:
    """The arrivals of all streams in [0, seconds), in order of time."""
    found = [one for place, stream in enumerate(streams) for one in _stream(stream, seconds, f"{seed}/{place}")]
    return tuple(sorted(found, key=lambda one: one.at))


def rate_at(rate: Rates, at: float) -> float:
    """The rate at a time, interpolated linearly between its points."""
    place = bisect_right(rate, at, key=lambda point: point[0])
    if place == 0 or place == len(rate):
        return rate[min(place, len(rate) - 1)][1]
    (start, before), (end, after) = rate[place - 1], rate[place]
    return before + (after - before) * (at - start) / (end - start)


def _stream(stream: Stream, seconds: float, seed: str) -> Iterator[Arrival]:
    times, lengths = random.Random(f"{seed}/times"), random.Random(f"{seed}/lengths")
    for at in _times(stream, seconds, times):
        for _ in range(_batch(stream.batch, times)):
            shifted = at + (BATCH_SECONDS * times.random() if stream.batch > 1.0 else 0.0)
            if shifted < seconds:
                yield Arrival(shifted, stream.prompt.draw(lengths), stream.output.draw(lengths), tenant=stream.tenant)


def _times(stream: Stream, seconds: float, rng: random.Random) -> Iterator[float]:
    """Times of an inhomogeneous Poisson process by thinning (Lewis and Shedler, 1979)."""
    most = max(rate for _, rate in stream.rate) / stream.batch
    periods = None if stream.on_off is None else tuple(_on_periods(stream.on_off, seconds, rng))
    at = 0.0
    while (at := at + rng.expovariate(most)) < seconds:
        kept = rng.random() * most * stream.batch < rate_at(stream.rate, at)
        if kept and (periods is None or _is_on(periods, at)):
            yield at


def _on_periods(on_off: tuple[float, float], seconds: float, rng: random.Random) -> Iterator[tuple[float, float]]:
    """The on periods as (start, end). The load begins with an off period."""
    at = 0.0
    while at < seconds:
        start = at + rng.expovariate(1.0 / on_off[1])
        at = start + rng.expovariate(1.0 / on_off[0])
        yield start, at


def _is_on(periods: Sequence[tuple[float, float]], at: float) -> bool:
    place = bisect_right(periods, at, key=lambda period: period[0])
    return place > 0 and at < periods[place - 1][1]


def _batch(mean: float, rng: random.Random) -> int:
    """The size of a batch: geometric with this mean, 1 or more."""
    return 1 if mean <= 1.0 else 1 + int(math.log(1.0 - rng.random()) / math.log(1.0 - 1.0 / mean))

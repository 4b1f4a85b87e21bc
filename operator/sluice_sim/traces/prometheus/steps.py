"""The amounts of requests and tokens per step, from counters or from rates."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from sluice_sim.traces.arrival import BadTrace
from sluice_sim.traces.fields import MOST_SECONDS
from sluice_sim.traces.prometheus.series import Series

MOST_STEPS: Final = 1_000_000
Span = tuple[float, float, float]  # (end, width, amount): s, s, requests or tokens


@dataclass(frozen=True, slots=True)
class Steps:
    """Amounts per step of `seconds`, from the first step on, for each kind."""

    seconds: float
    amounts: Mapping[str, Sequence[float]]


def added_up(series: Sequence[Series], counters: bool) -> Steps:
    """Add all series up in steps of the smallest distance between two samples. Raises BadTrace."""
    samples = [(one, one.samples()) for one in series]
    seconds = min((after - at for _, seen in samples for (at, _), (after, _) in pairwise(seen)), default=0.0)
    if seconds <= 0:
        raise BadTrace("expected two samples or more in a series: the distance between them is the step")
    first = min(seen[0][0] for _, seen in samples if seen)
    last = max(seen[-1][0] for _, seen in samples if seen)
    if last - first > MOST_SECONDS or (last - first) / seconds > MOST_STEPS:
        raise BadTrace(
            f"expected a range of a year and {MOST_STEPS} steps at most, found {last - first:.0f} s in {seconds:g} s"
        )
    rates = any(not (one.named and counters) for one in series)
    origin = first - seconds if rates else first
    count = max(1, round((last - origin) / seconds))
    amounts = {one.kind: [0.0] * count for one in series}
    for one, seen in samples:
        spans = _increases(seen, first, seconds) if one.named and counters else _integrals(seen, seconds)
        for end, width, amount in spans:
            steps = max(1, round(width / seconds))
            until = round((end - origin) / seconds)
            for step in range(max(0, until - steps), until):
                amounts[one.kind][step] += amount / steps
    return Steps(seconds, amounts)


def _increases(seen: Sequence[tuple[float, float]], first: float, seconds: float) -> Iterator[Span]:
    """The increases of a counter. One that begins after `first` began at 0; one that falls was reset to 0."""
    for at, value in seen[:1]:
        if at > first:
            yield at, seconds, value
    for (before, low), (at, value) in pairwise(seen):
        yield at, at - before, value - low if value >= low else value


def _integrals(seen: Sequence[tuple[float, float]], seconds: float) -> Iterator[Span]:
    """A rate times the step that ends at its sample."""
    return ((at, seconds, value * seconds) for at, value in seen)

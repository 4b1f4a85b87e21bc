"""The last half hour of arrivals, in slots of time: what trend, burstiness and forecast are read from.

Each pod's difference of two scrapes is spread over the time between them, so that a lost scrape moves no request into
another slot and pods that are scraped at different instants add up.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from sluice_law.forecast import Forecast, Nature, forecast, nature_of
from sluice_operator.decide.values import Memory

WIDTH: Final = 10.0  # seconds of a slot: two scrapes at 5 s
KEPT: Final = 180  # slots: half an hour, many cold starts
LEAST: Final = 3  # whole slots before their forecast says more than the window's mean


def book(memory: Memory, growths: Iterable[tuple[float, float, float]], now: float) -> Memory:
    """Add arrivals: (from, to, count) for each pod. Slots of which nothing is known stay absent."""
    counts = dict(memory.slots)
    for begun, ended, count in growths:
        first, last = math.floor(begun / WIDTH), math.floor(ended / WIDTH)
        for slot in range(max(first, last - KEPT), last + 1):
            overlap = min(ended, (slot + 1) * WIDTH) - max(begun, slot * WIDTH)
            counts[slot] = counts.get(slot, 0.0) + count * max(overlap, 0.0) / max(ended - begun, 1e-9)
    newest = math.floor(now / WIDTH)
    kept = sorted((slot, count) for slot, count in counts.items() if newest - KEPT < slot <= newest)
    return replace(memory, slots=tuple(kept))


def outlook(memory: Memory, now: float, horizon: float) -> Forecast | None:
    """The forecast from whole slots, those that every scrape has passed; None while there are too few."""
    gap = memory.scrape_gap or WIDTH / 2.0
    whole = math.floor((now - gap) / WIDTH)
    rates = _consecutive([(slot, count / WIDTH) for slot, count in memory.slots if slot < whole])
    grouped = max(1, math.ceil(2.0 * gap / WIDTH))  # slots finer than scrapes repeat themselves
    rates = [math.fsum(rates[i : i + grouped]) / grouped for i in range(len(rates) % grouped, len(rates), grouped)]
    if len(rates) < LEAST:
        return None
    width = WIDTH * grouped
    nature: Nature = nature_of(rates, width, math.ceil(horizon / width), memory.before)
    late = now - whole * WIDTH
    return forecast(rates, width, horizon + late, nature)


def _consecutive(slots: list[tuple[int, float]]) -> list[float]:
    """The rates of the newest slots without a hole: across one nothing can be compared. The very first slot was not
    watched from its beginning."""
    rates: list[float] = []
    for place in range(len(slots) - 1, 0, -1):
        rates.append(slots[place][1])
        if slots[place][0] - slots[place - 1][0] != 1:
            break
    return rates[::-1]

"""What the last half hour of arrivals says of those that come: trend, burstiness and forecast, read from its slots."""

import math
from typing import Final

from sluice_law.forecast import Forecast, forecast
from sluice_law.nature import nature_of
from sluice_operator.decide.history import WIDTH
from sluice_operator.decide.values import Memory

LEAST: Final = 3  # whole slots before their forecast says more than the window's mean


def outlook(memory: Memory, now: float, horizon: float) -> Forecast | None:
    """The forecast from whole slots, those that every scrape has passed; None while there are too few."""
    gap = memory.scrape_gap or WIDTH / 2.0
    whole = math.floor((now - gap) / WIDTH)
    rates = [count / WIDTH for count in _consecutive([one for one in memory.slots if one[0] < whole])]
    grouped = max(1, math.ceil(2.0 * gap / WIDTH))  # slots finer than scrapes repeat themselves
    if grouped > 1:
        rates = [math.fsum(rates[i : i + grouped]) / grouped for i in range(len(rates) % grouped, len(rates), grouped)]
    if len(rates) < LEAST:
        return None
    width = WIDTH * grouped
    nature = nature_of(rates, width, math.ceil(horizon / width), memory.before)
    late = now - whole * WIDTH
    return forecast(rates, width, horizon + late, nature)


def _consecutive(slots: list[tuple[int, float]]) -> list[float]:
    """What the newest slots without a hole count: across one nothing can be compared. The very first slot was not
    watched from its beginning."""
    first = 1
    if slots and slots[-1][0] - slots[0][0] >= len(slots):  # somewhere there is one
        first = next(n for n in range(len(slots) - 1, 0, -1) if slots[n][0] - slots[n - 1][0] != 1)
    return [count for _, count in slots[first:]]

"""Forecast inputs: trend, arrival statistics and forecast from the slots of the last half hour."""

import math
from typing import Final

from sluice_operator.autoscaler.signals.arrival_history import WIDTH
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_perfmodel.arrival_stats import arrival_stats
from sluice_perfmodel.forecast import Forecast, forecast

LEAST: Final = 3  # fewest complete slots: with fewer, the window's mean is as good


def outlook(memory: AutoscalerState, now: float, horizon: float) -> Forecast | None:
    """The forecast from complete slots, those that every pod's scrapes cover; None with fewer than `LEAST`."""
    gap = memory.scrape_gap or WIDTH / 2.0
    whole = math.floor((now - gap) / WIDTH)
    rates = [count / WIDTH for count in _consecutive([one for one in memory.slots if one[0] < whole])]
    grouped = max(1, math.ceil(2.0 * gap / WIDTH))  # slots shorter than the scrape interval repeat each other
    if grouped > 1:
        rates = [math.fsum(rates[i : i + grouped]) / grouped for i in range(len(rates) % grouped, len(rates), grouped)]
    if len(rates) < LEAST:
        return None
    width = WIDTH * grouped
    arrivals = arrival_stats(rates, width, math.ceil(horizon / width), memory.before)
    late = now - whole * WIDTH
    return forecast(rates, width, horizon + late, arrivals)


def _consecutive(slots: list[tuple[int, float]]) -> list[float]:
    """The counts of the newest slots up to the last gap, because nothing can be compared across a gap.

    The first slot is left out: it was not observed from its beginning.
    """
    first = 1
    if slots and slots[-1][0] - slots[0][0] >= len(slots):  # there is a gap
        first = next(n for n in range(len(slots) - 1, 0, -1) if slots[n][0] - slots[n - 1][0] != 1)
    return [count for _, count in slots[first:]]

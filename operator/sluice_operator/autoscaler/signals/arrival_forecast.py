"""The forecast of the arrival rate, from the slots of the last half hour."""

import math

from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.arrival_history import ArrivalState
from sluice_perfmodel.arrival_stats import arrival_stats
from sluice_perfmodel.forecast import Forecast, forecast


def arrival_forecast(state: ArrivalState, scrape_gap: float | None, now: float, horizon: float) -> Forecast | None:
    """The forecast `horizon` seconds ahead; None with fewer than `least_slots` complete slots.

    A slot is complete when every pod's scrapes cover it; they are `scrape_gap` seconds apart.
    """
    width = LAW.signals.slot_seconds
    gap = scrape_gap or width / 2.0
    newest = math.floor((now - gap) / width)  # the first slot that is not complete
    rates = [count / width for count in _consecutive([one for one in state.slots if one[0] < newest])]
    grouped = max(1, math.ceil(2.0 * gap / width))  # slots shorter than the scrape interval repeat each other
    if grouped > 1:
        rates = [math.fsum(rates[i : i + grouped]) / grouped for i in range(len(rates) % grouped, len(rates), grouped)]
    if len(rates) < LAW.signals.least_slots:
        return None
    step = width * grouped
    stats = arrival_stats(rates, step, math.ceil(horizon / step), state.prior)
    since_newest = now - newest * width
    return forecast(rates, step, horizon + since_newest, stats)


def _consecutive(slots: list[tuple[int, float]]) -> list[float]:
    """The counts of the newest slots up to the last gap, because nothing can be compared across a gap.

    The first slot is left out: it was not observed from its beginning.
    """
    first = 1
    if slots and slots[-1][0] - slots[0][0] >= len(slots):  # there is a gap
        first = next(n for n in range(len(slots) - 1, 0, -1) if slots[n][0] - slots[n - 1][0] != 1)
    return [count for _, count in slots[first:]]

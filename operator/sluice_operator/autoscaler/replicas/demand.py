"""Demand: the requests per second to plan for."""

import math
from dataclasses import dataclass
from typing import Final

from sluice_operator.autoscaler.signals import cold_start
from sluice_operator.autoscaler.signals.arrival_outlook import outlook
from sluice_operator.autoscaler.signals.freshness import USUAL_GAP, Fresh
from sluice_operator.autoscaler.signals.windows import SHORT, WINDOW, over
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_perfmodel.arrival_stats import ArrivalStats
from sluice_perfmodel.forecast import provisioned_rate

PLANNED: Final = 0.85  # quantile of the load one cold start ahead; the queueing model covers shorter bursts
HIGHEST: Final = 0.9  # the same for the load that scale-in must survive for a whole stabilisation window
SIGMAS: Final = 2.0  # deviations subtracted from a count: chance alone exceeds them once in forty times
DRAIN: Final = 30.0  # seconds in which the backlog is to be drained: one window, so that the next one shows it


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests per second, rejected ones included."""

    expected: float  # the rate to plan for
    highest: float  # a possible rate that scale-in must survive
    backlog: float  # waiting now, in requests
    horizon: float  # seconds until a replica ordered now serves
    arrivals: ArrivalStats  # arrival statistics
    level: float  # now


def demand(
    memory: AutoscalerState, seen: Fresh, now: float, patience: float = 0.0, hold: float = 0.0, ease: float = 1.0
) -> Demand:
    """The demand to plan for.

    It is a quantile of the forecast one cold start ahead. It is reduced by the requests that can wait for up to
    `patience` seconds, and raised where the last seconds show more.

    A replica ordered when a rise is seen serves one cold start later, and a queue may grow until then. A replica that
    was removed is back only after it was missed. `highest`, which scale-in must survive, therefore lasts for a
    stabilisation window (`hold`, seconds) more, and the same patience covers less of it.

    An arrival count of N scatters by √(I·N), so a window counts with its lower bound (one burst of five is no trend).
    Without any history the window's mean stands for the forecast, and only then do the last seconds count alone: a
    burst of twenty seconds ends before a replica ordered for it serves.
    """
    horizon = (cold_start.seconds(memory) or cold_start.USUAL) + (memory.scrape_gap or USUAL_GAP)
    window, short = over(memory, now, WINDOW), over(memory, now, SHORT)
    count, recent = window.count("arrived_total"), short.count("arrived_total")
    ahead = outlook(memory, now, horizon)
    arrivals = memory.before if ahead is None else ahead.arrivals
    lower = _lower(count, window.seconds, arrivals)
    if ahead is None:
        lower = max(lower, _lower(recent, short.seconds, arrivals))
    if ahead is not None:
        level = ahead.level
        expected = provisioned_rate(ahead.quantile(eased(PLANNED, ease)), ahead.mean, horizon, patience)
        highest = provisioned_rate(ahead.quantile(eased(HIGHEST, ease)), ahead.mean, horizon + hold, patience)
    else:
        whole = window.seconds >= WINDOW - USUAL_GAP
        level = expected = window.rate("arrived_total") if whole else lower
        highest = (count + math.sqrt(count)) / window.seconds if window.seconds > 0 else 0.0
    return Demand(
        expected=max(expected, lower),
        highest=max(highest, lower),
        backlog=sum(sample.waiting for _, sample in seen.known),
        horizon=horizon,
        arrivals=arrivals,
        level=level,
    )


def eased(share: float, ease: float) -> float:
    """The quantile to plan for where `ease` times the targeted misses are allowed.

    The load may then exceed the quantile that many times as often, as long as the quantile is at least 0.5 (or `share`,
    where that is lower).
    """
    return max(1.0 - ease * (1.0 - share), min(share, 0.5))


def _lower(count: float, seconds: float, arrivals: ArrivalStats) -> float:
    scatter = SIGMAS * math.sqrt(max(arrivals.dispersion, 1.0) * count)
    return max(0.0, count - scatter) / seconds if seconds > 0 else 0.0

"""Demand: the requests per second to plan for."""

import math
from dataclasses import dataclass

from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals import cold_start
from sluice_operator.autoscaler.signals.arrival_forecast import arrival_forecast
from sluice_operator.autoscaler.signals.snapshot import Snapshot
from sluice_perfmodel.arrival_stats import ArrivalStats
from sluice_perfmodel.forecast import Forecast, provisioned_rate


@dataclass(frozen=True, slots=True)
class Demand:
    """Requests per second, rejected ones included."""

    expected: float  # the rate to plan for
    highest: float  # a possible rate that scale-in must survive
    backlog: float  # waiting now, in requests
    horizon: float  # seconds until a replica ordered now serves
    arrivals: ArrivalStats
    level: float  # now


def measure_demand(snapshot: Snapshot, miss_factor: float = 1.0) -> Demand:
    """The demand to plan for, where `miss_factor` times the targeted misses are allowed.

    It is a quantile of the forecast one cold start ahead. It is reduced by the requests that can wait for a part of the
    TTFT target, and raised where the last seconds show more.

    An arrival count of N scatters by √(I·N), so a window counts with its lower bound (one burst of five is no trend).
    Without any history the window's mean stands for the forecast, and only then do the last seconds count alone: a
    burst of twenty seconds ends before a replica ordered for it serves.
    """
    signals, window = snapshot.signals, snapshot.window
    gap = signals.window.scrape_gap
    horizon = cold_start.expected_seconds(signals.cold_starts) + (gap or LAW.signals.usual_scrape_seconds)
    ahead = arrival_forecast(signals.arrivals, gap, snapshot.now, horizon)
    arrivals = signals.arrivals.prior if ahead is None else ahead.arrivals
    lower = _lower_bound(window.count("arrived_total"), window.seconds, arrivals)
    if ahead is None:
        recent = snapshot.short
        lower = max(lower, _lower_bound(recent.count("arrived_total"), recent.seconds, arrivals))
        level, expected, highest = _without_forecast(snapshot, lower)
    else:
        level = ahead.level
        expected, highest = _with_forecast(snapshot, ahead, horizon, miss_factor)
    return Demand(
        expected=max(expected, lower),
        highest=max(highest, lower),
        backlog=sum(sample.waiting for _, sample in snapshot.fleet.measured),
        horizon=horizon,
        arrivals=arrivals,
        level=level,
    )


def _with_forecast(snapshot: Snapshot, ahead: Forecast, horizon: float, miss_factor: float) -> tuple[float, float]:
    """The expected and the highest rate, by the forecast.

    A replica ordered when a rise is seen serves one cold start later, and a queue may grow until then. A replica that
    was removed is back only after it was missed. The highest rate, which scale-in must survive, therefore lasts for a
    stabilization window more, and the same patience covers less of it.
    """
    settings = LAW.replicas
    patience = settings.patience * snapshot.targets.ttft
    window = float(snapshot.spec.scaling.scale_down_stabilization_seconds)
    expected = ahead.quantile(budgeted_quantile(settings.scale_out_quantile, miss_factor))
    highest = ahead.quantile(budgeted_quantile(settings.scale_in_quantile, miss_factor))
    return (
        provisioned_rate(expected, ahead.mean, horizon, patience),
        provisioned_rate(highest, ahead.mean, horizon + window, patience),
    )


def _without_forecast(snapshot: Snapshot, lower: float) -> tuple[float, float, float]:
    """The level, the expected and the highest rate, by the window's mean once the window is whole."""
    window, count = snapshot.window, snapshot.window.count("arrived_total")
    whole = window.seconds >= LAW.signals.window_seconds - LAW.signals.usual_scrape_seconds
    level = window.rate("arrived_total") if whole else lower
    highest = (count + math.sqrt(count)) / window.seconds if window.seconds > 0 else 0.0
    return level, level, highest


def budgeted_quantile(quantile: float, miss_factor: float) -> float:
    """The quantile to plan for where `miss_factor` times the targeted misses are allowed.

    The load may then exceed the quantile that many times as often, as long as it is at least 0.5 (or `quantile`, where
    that is lower).
    """
    return max(1.0 - miss_factor * (1.0 - quantile), min(quantile, 0.5))


def _lower_bound(count: float, seconds: float, arrivals: ArrivalStats) -> float:
    """The rate that a count of arrivals shows beyond chance, requests per second."""
    scatter = LAW.replicas.arrival_sigmas * math.sqrt(max(arrivals.dispersion, 1.0) * count)
    return max(0.0, count - scatter) / seconds if seconds > 0 else 0.0

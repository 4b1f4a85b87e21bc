"""Forecast of the arrival rate one cold start ahead, as a mean and a deviation, from the trend and recent bursts.

The rate of each slot is a level plus noise. The level follows a random walk and may have a trend (the local linear
trend model; Harvey, "Forecasting, Structural Time Series Models and the Kalman Filter", 1989). The variances of walk
and noise come from `arrival_stats`. The level and its error are those of a Kalman filter with these two. The plan uses
a quantile of the forecast, because planning on the mean under-provisions bursts by about a third.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

from sluice_perfmodel.arrival_stats import ArrivalStats
from sluice_perfmodel.settings import PERFMODEL

_SETTINGS: Final = PERFMODEL.arrivals


@dataclass(frozen=True, slots=True)
class Forecast:
    """The rate one horizon ahead, requests per second: mean and standard deviation of the level."""

    level: float  # now
    trend: float  # per second, the part that is beyond chance
    mean: float
    deviation: float
    arrivals: ArrivalStats

    def quantile(self, share: float) -> float:
        """The rate that the future level stays under with probability `share`."""
        return max(0.0, self.mean + NormalDist().inv_cdf(share) * self.deviation)


def forecast(rates: Sequence[float], width: float, horizon: float, arrivals: ArrivalStats) -> Forecast:
    """Forecast the level `horizon` seconds after the last slot.

    `rates` are requests per second of consecutive slots of `width` seconds, oldest first. Without any slot all results
    are 0. O(slots of the level).
    """
    recent = rates[-_SETTINGS.level_slots :]
    if not recent:
        return Forecast(0.0, 0.0, 0.0, 0.0, arrivals)
    scale = max(math.fsum(recent) / len(recent), 1.0 / (width * len(recent)))
    noise = arrivals.dispersion * scale / width
    walk = (arrivals.volatility * scale) ** 2 * width
    error = (math.sqrt(walk * walk + 4.0 * walk * noise) - walk) / 2.0
    gain = (error + walk) / (error + walk + noise)
    level = recent[0]
    for count, rate in enumerate(recent[1:], start=2):
        level += max(gain, 1.0 / count) * (rate - level)
    steps = horizon / width
    trend = _trend(rates, steps, noise, walk)
    gain = max(gain, 1.0 / len(recent))  # the weight of the last slot: never 0
    # Exponential smoothing lags behind a line (Brown, 1959); this is the lag since the trend began.
    lag = (1.0 - gain) / gain * (1.0 - (1.0 - gain) ** _watched(rates, steps))
    level = max(0.0, level + trend * lag)
    mean = level + min(max(trend * steps, -level / 2.0), level)
    return Forecast(level, trend / width, max(0.0, mean), math.sqrt(walk * steps), arrivals)


def provisioned_rate(peak: float, usual: float, seconds: float, patience: float) -> float:
    """The rate to provision for a load of `peak` that replaces `usual` for `seconds`.

    No request then waits longer than `patience` seconds.

    A fluid queue that starts empty then holds (peak − held)·seconds, which drains at the rate `held`:

        held = peak·seconds / (seconds + patience)

    The result is at least min(usual, peak) and at most the peak. Without patience it is the peak.
    """
    if seconds + patience <= 0.0:
        return peak
    return max(min(usual, peak), peak * (seconds / (seconds + patience)))


def _trend(rates: Sequence[float], steps: float, noise: float, walk: float) -> float:
    """Slope per slot over the last four horizons, as far as both halves of them show it.

    A jump lies in one half or between them, so it never counts. The slope that noise and walk alone produce is
    subtracted: one standard error of the slope of a straight line and of a random walk.
    """
    half = _watched(rates, steps) // 2
    if half < _SETTINGS.least_trend_slots // 2:
        return 0.0
    early, late = _slope(rates[-2 * half : -half]), _slope(rates[-half:])
    if early * late <= 0:
        return 0.0
    squares = half * (half * half - 1.0) / 12.0
    chance = math.sqrt(noise / squares + 1.2 * walk / half)
    return math.copysign(max(0.0, min(abs(early), abs(late)) - chance), late)


def _watched(rates: Sequence[float], steps: float) -> int:
    """Number of recent slots used to detect a trend."""
    return min(
        len(rates),
        _SETTINGS.level_slots,
        max(_SETTINGS.least_trend_slots, math.ceil(_SETTINGS.trend_horizons * steps)),
    )


def _slope(rates: Sequence[float]) -> float:
    """Least-squares slope per slot."""
    middle = (len(rates) - 1) / 2.0
    squares = len(rates) * (len(rates) ** 2 - 1.0) / 12.0
    return math.fsum((place - middle) * rate for place, rate in enumerate(rates)) / squares

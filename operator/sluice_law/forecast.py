"""Where the arrival rate will be when a replica ordered now is ready, as a mean and a spread: trend and recent bursts.

The rate of each slot of time is the level plus noise; the level walks, and may have a trend (the local linear trend
model; Harvey, "Forecasting, Structural Time Series Models and the Kalman Filter", 1989). How much of either is the
load's nature (`nature`); level and its error are those of a Kalman filter with these two. A quantile of the forecast,
not its mean, is what is planned for: planning on means under-provisions bursts by about a third.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

from sluice_law.nature import Nature

FILTERED: Final = 60  # slots that the level is taken from: older ones have no weight left
TREND_LEAST: Final = 12  # slots that a trend is looked for in: fewer cannot tell one from noise


@dataclass(frozen=True, slots=True)
class Forecast:
    """The rate one horizon ahead, requests per second: mean and standard deviation of the level."""

    level: float  # now
    trend: float  # per second, as far as it is beyond chance
    mean: float
    deviation: float
    nature: Nature

    def quantile(self, share: float) -> float:
        """The rate that the future level stays under with this probability."""
        return max(0.0, self.mean + NormalDist().inv_cdf(share) * self.deviation)


def forecast(rates: Sequence[float], width: float, horizon: float, nature: Nature) -> Forecast:
    """The level `horizon` seconds after the last slot. Without any slot everything is 0."""
    recent = rates[-FILTERED:]
    if not recent:
        return Forecast(0.0, 0.0, 0.0, 0.0, nature)
    scale = max(math.fsum(recent) / len(recent), 1.0 / (width * len(recent)))
    noise = nature.dispersion * scale / width
    walk = (nature.volatility * scale) ** 2 * width
    error = (math.sqrt(walk * walk + 4.0 * walk * noise) - walk) / 2.0
    gain = (error + walk) / (error + walk + noise)
    level = recent[0]
    for place, rate in enumerate(recent[1:], start=2):
        level += max(gain, 1.0 / place) * (rate - level)
    steps = horizon / width
    trend = _trend(rates, steps, noise, walk)
    gain = max(gain, 1.0 / len(recent))  # the one that the last slot was weighed with: never 0
    # What exponential smoothing lags behind a line (Brown, 1959) that began where the trend was seen to.
    lag = (1.0 - gain) / gain * (1.0 - (1.0 - gain) ** _watched(rates, steps))
    level = max(0.0, level + trend * lag)
    mean = level + min(max(trend * steps, -level / 2.0), level)
    return Forecast(level, trend / width, max(0.0, mean), math.sqrt(walk * steps), nature)


def bearable(peak: float, usual: float, seconds: float, patience: float) -> float:
    """The rate to be held so that nobody waits longer than `patience` seconds when `peak` comes for `seconds` in place of
    `usual`. A fluid queue that was empty then holds (peak − held)·seconds, which is worked off at `held`:

        held = peak·seconds / (seconds + patience)

    and never less than what comes usually, nor more than the peak. With no patience it is the peak."""
    if seconds + patience <= 0.0:
        return peak
    return max(min(usual, peak), peak * (seconds / (seconds + patience)))


def _trend(rates: Sequence[float], steps: float, noise: float, walk: float) -> float:
    """Slope per slot over the last two horizons' doubles, as far as both halves of them show it (a jump is in one half
    or between them, never in both), less what noise and walk alone would show: one standard error of a straight
    line's slope and of a random walk's own."""
    half = _watched(rates, steps) // 2
    if half < TREND_LEAST // 2:
        return 0.0
    early, late = _slope(rates[-2 * half : -half]), _slope(rates[-half:])
    if early * late <= 0:
        return 0.0
    squares = half * (half * half - 1.0) / 12.0
    chance = math.sqrt(noise / squares + 1.2 * walk / half)
    return math.copysign(max(0.0, min(abs(early), abs(late)) - chance), late)


def _watched(rates: Sequence[float], steps: float) -> int:
    """Slots that a trend is looked for in."""
    return min(len(rates), FILTERED, max(TREND_LEAST, math.ceil(4.0 * steps)))


def _slope(rates: Sequence[float]) -> float:
    """Least squares."""
    middle = (len(rates) - 1) / 2.0
    squares = len(rates) * (len(rates) ** 2 - 1.0) / 12.0
    return math.fsum((place - middle) * rate for place, rate in enumerate(rates)) / squares

"""Where the arrival rate will be when a replica ordered now is ready, as a mean and a spread: trend and recent bursts.

The rate of each slot of time is the level plus noise; the level walks, and may have a trend (the local linear trend
model; Harvey, "Forecasting, Structural Time Series Models and the Kalman Filter", 1989). Two numbers describe the
load, both read off how slots differ, as a variogram (Matheron, 1963): with S(k) the mean squared difference of slots
k apart,

    S(k) = 2r + k·q        r: noise of one slot, q: how far the level walks per slot

The index of dispersion of the counts is r·width/rate (1: Poisson; it goes into the queueing); q is what a forecast
cannot know. Level and its error are those of a Kalman filter with these two. A quantile of the forecast, not its mean,
is what is planned for: planning on means under-provisions bursts by about a third.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

USUAL_DISPERSION: Final = 1.0  # Poisson, until measured otherwise
USUAL_VOLATILITY: Final = 0.013  # of the level per √second: a tenth in a minute
DISPERSION_BOUNDS: Final = (0.25, 50.0)
VOLATILITY_LEAST: Final = 1e-3  # of the level per √second: 6 % in an hour; a load that never moves is not believed
VOLATILITY_MOST: Final = 0.2  # of the level per √second: it doubles in half a minute
LEAST_RATE: Final = 1e-9  # requests/s; less is nobody: one request in thirty years
PRIOR_SLOTS: Final = 12.0  # that many slots' worth of belief in what was known before
FILTERED: Final = 60  # slots that the level is taken from: older ones have no weight left
TREND_LEAST: Final = 12  # slots that a trend is looked for in: fewer cannot tell one from noise


@dataclass(frozen=True, slots=True)
class Nature:
    """How a load moves. `dispersion` is Var/mean of counts; `volatility` how far the level walks, as a share of itself
    per √second; `slots` how many slots of measurement stand behind both."""

    dispersion: float = USUAL_DISPERSION
    volatility: float = USUAL_VOLATILITY
    slots: float = PRIOR_SLOTS


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


def nature_of(rates: Sequence[float], width: float, ahead: int, before: Nature) -> Nature:
    """How the load moves, by the differences of slots one and `ahead` apart; blended with what was known `before`.

    `rates` are requests per second of consecutive slots of `width` seconds, oldest first.
    """
    far = max(2, min(ahead, len(rates) // 4))
    mean = math.fsum(rates) / len(rates) if rates else 0.0
    if len(rates) < 6 or mean < LEAST_RATE:
        return before
    apart = _squared(rates, 1)
    walk = max(0.0, (_squared(rates, far) - apart) / (far - 1))
    noise = max(0.0, apart - walk) / 2.0
    weight, known = float(len(rates)), min(before.slots, PRIOR_SLOTS * 5.0)
    low, high = DISPERSION_BOUNDS
    dispersion = (weight * noise * width / mean + known * before.dispersion) / (weight + known)
    pieces = weight / far  # differences that overlap are one measurement
    variance = (pieces * walk / width / mean**2 + known * before.volatility**2) / (pieces + known)
    return Nature(
        min(max(dispersion, low), high),
        min(max(math.sqrt(variance), VOLATILITY_LEAST), VOLATILITY_MOST),
        weight + known,
    )


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


def _squared(rates: Sequence[float], lag: int) -> float:
    """Squared difference of slots `lag` apart on the mean, robust against a single jump: the fourth power of the mean
    root, by Cressie & Hawkins ("Robust estimation of the variogram", 1980). One jump is no restless load."""
    count = len(rates) - lag
    root = math.fsum(math.sqrt(abs(b - a)) for a, b in zip(rates, rates[lag:], strict=False)) / count
    return root**4 / (0.457 + 0.494 / count)


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

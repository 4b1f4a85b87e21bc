"""How a load moves: how bursty it is and how far it walks, both read off how slots of time differ.

The rate of each slot is a level that walks plus noise. With S(k) the mean squared difference of slots k apart (a variogram;
Matheron, 1963)

    S(k) = 2r + k·q        r: noise of one slot, q: how far the level walks per slot

The index of dispersion of the counts is r·width/rate (1: Poisson; it goes into the queueing); q is what a forecast
cannot know.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

USUAL_DISPERSION: Final = 1.0  # Poisson, until measured otherwise
USUAL_VOLATILITY: Final = 0.013  # of the level per √second: a tenth in a minute
DISPERSION_BOUNDS: Final = (0.25, 50.0)
VOLATILITY_LEAST: Final = 1e-3  # of the level per √second: 6 % in an hour; a load that never moves is not believed
VOLATILITY_MOST: Final = 0.2  # of the level per √second: it doubles in half a minute
LEAST_RATE: Final = 1e-9  # requests/s; less is nobody: one request in thirty years
PRIOR_SLOTS: Final = 12.0  # that many slots' worth of belief in what was known before


@dataclass(frozen=True, slots=True)
class Nature:
    """How a load moves. `dispersion` is Var/mean of counts; `volatility` how far the level walks, as a share of itself
    per √second; `slots` how many slots of measurement stand behind both."""

    dispersion: float = USUAL_DISPERSION
    volatility: float = USUAL_VOLATILITY
    slots: float = PRIOR_SLOTS


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


def _squared(rates: Sequence[float], lag: int) -> float:
    """Squared difference of slots `lag` apart on the mean, robust against a single jump: the fourth power of the mean
    root, by Cressie & Hawkins ("Robust estimation of the variogram", 1980). One jump is no restless load."""
    count = len(rates) - lag
    sqrt = math.sqrt
    root = math.fsum([sqrt(abs(b - a)) for a, b in zip(rates, rates[lag:], strict=False)]) / count
    return root**4 / (0.457 + 0.494 / count)

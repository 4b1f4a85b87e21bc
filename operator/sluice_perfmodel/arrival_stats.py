"""Arrival statistics: index of dispersion and volatility, estimated from the differences between time slots.

The rate of each slot is a level that follows a random walk, plus noise. With S(k) the mean squared difference of slots
k apart (a variogram; Matheron, 1963)

    S(k) = 2r + k·q        r: noise variance of one slot, q: variance of the walk per slot

The index of dispersion of the counts is r·width/rate (1: Poisson) and enters the queueing model. q gives the part of
the future rate that a forecast cannot predict.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sluice_perfmodel.settings import PERFMODEL

_SETTINGS: Final = PERFMODEL.arrivals

LEAST_RATE: Final = 1e-9  # requests/s; a lower rate counts as no traffic: one request in thirty years


@dataclass(frozen=True, slots=True)
class ArrivalStats:
    """Arrival statistics of a load.

    `dispersion` is Var/mean of counts. `volatility` is the deviation of the level's random walk, as a share of the
    level per √second. `slots` is the number of measured slots behind both estimates.
    """

    dispersion: float = _SETTINGS.usual_dispersion
    volatility: float = _SETTINGS.usual_volatility
    slots: float = _SETTINGS.prior_slots


def arrival_stats(rates: Sequence[float], width: float, ahead: int, before: ArrivalStats) -> ArrivalStats:
    """Estimate the arrival statistics from differences of slots one and `ahead` apart, blended with `before`.

    `rates` are requests per second of consecutive slots of `width` seconds, oldest first. With fewer than 6 slots, or a
    mean below `LEAST_RATE`, the result is `before`. O(len(rates)).
    """
    far = max(2, min(ahead, len(rates) // 4))
    mean = math.fsum(rates) / len(rates) if rates else 0.0
    if len(rates) < 6 or mean < LEAST_RATE:
        return before
    apart = _squared(rates, 1)
    walk = max(0.0, (_squared(rates, far) - apart) / (far - 1))
    noise = max(0.0, apart - walk) / 2.0
    weight, known = float(len(rates)), min(before.slots, _SETTINGS.prior_slots * _SETTINGS.prior_most)
    low, high = _SETTINGS.dispersion_bounds
    dispersion = (weight * noise * width / mean + known * before.dispersion) / (weight + known)
    pieces = weight / far  # overlapping differences count as one measurement
    variance = (pieces * walk / width / mean**2 + known * before.volatility**2) / (pieces + known)
    return ArrivalStats(
        min(max(dispersion, low), high),
        min(max(math.sqrt(variance), _SETTINGS.least_volatility), _SETTINGS.most_volatility),
        weight + known,
    )


def _squared(rates: Sequence[float], lag: int) -> float:
    """Mean squared difference of slots `lag` apart, robust against a single jump.

    The estimator is the fourth power of the mean root (Cressie & Hawkins, "Robust estimation of the variogram", 1980).
    One jump does not make a load volatile.
    """
    count = len(rates) - lag
    sqrt = math.sqrt
    root = math.fsum([sqrt(abs(b - a)) for a, b in zip(rates, rates[lag:], strict=False)]) / count
    return root**4 / (0.457 + 0.494 / count)

"""A Kalman filter with a local linear trend: level and slope, one observation at a time, one step ahead.

Sources: Harvey, "Forecasting, Structural Time Series Models and the Kalman Filter", 1989, chapter 2; defaults
(level 1, trend 0.1, observation 10, first covariance 1000) of ai-dynamo/dynamo, planner/core/load/predictors.py.
"""

import math
from dataclasses import dataclass
from typing import Final

LEVEL_NOISE: Final = 1.0
TREND_NOISE: Final = 0.1
OBSERVATION_NOISE: Final = 10.0
FIRST: Final = 1000.0


@dataclass(frozen=True, slots=True)
class Trend:
    """The predicted state before the next observation, and its covariance. `level` is the forecast."""

    level: float = 0.0
    slope: float = 0.0
    var_level: float = FIRST
    covariance: float = 0.0
    var_slope: float = FIRST
    started: bool = False


def observe(trend: Trend, value: float) -> Trend:
    """Update with an observation and predict one step ahead.

    A value that is not finite counts as 0. Zeros before the first load are skipped."""
    value = value if math.isfinite(value) else 0.0
    if not trend.started:
        return trend if value == 0.0 else _ahead(Trend(level=value, started=True))
    noise = trend.var_level + OBSERVATION_NOISE
    gain_level, gain_slope = trend.var_level / noise, trend.covariance / noise
    off = value - trend.level
    return _ahead(
        Trend(
            level=trend.level + gain_level * off,
            slope=trend.slope + gain_slope * off,
            var_level=(1.0 - gain_level) * trend.var_level,
            covariance=(1.0 - gain_level) * trend.covariance,
            var_slope=trend.var_slope - gain_slope * trend.covariance,
            started=True,
        )
    )


def _ahead(trend: Trend) -> Trend:
    return Trend(
        level=trend.level + trend.slope,
        slope=trend.slope,
        var_level=trend.var_level + 2.0 * trend.covariance + trend.var_slope + LEVEL_NOISE,
        covariance=trend.covariance + trend.var_slope,
        var_slope=trend.var_slope + TREND_NOISE,
        started=True,
    )

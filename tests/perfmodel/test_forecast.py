"""The forecast on loads with known arrival statistics."""

import math
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sluice_perfmodel.arrival_stats import ArrivalStats, arrival_stats
from sluice_perfmodel.forecast import forecast, provisioned_rate
from sluice_perfmodel.settings import PERFMODEL

WIDTH = 10.0


def poisson(rng: random.Random, rate: float, batch: int = 1) -> float:
    """Arrivals per second in one slot, in batches: the index of dispersion is the batch."""
    left, count = WIDTH, 0
    while (left := left - rng.expovariate(rate / batch)) > 0:
        count += batch
    return count / WIDTH


@pytest.mark.parametrize("batch", [1, 4, 10])
def test_the_index_of_dispersion_is_that_of_the_arrivals(batch: int) -> None:
    rng = random.Random(3)
    rates = [poisson(rng, 20.0, batch) for _ in range(180)]
    assert arrival_stats(rates, WIDTH, 6, ArrivalStats()).dispersion == pytest.approx(batch, rel=0.4)


def test_a_steady_load_is_forecast_with_a_small_deviation() -> None:
    rng = random.Random(5)
    rates = [poisson(rng, 20.0) for _ in range(180)]
    ahead = forecast(rates, WIDTH, 60.0, arrival_stats(rates, WIDTH, 6, ArrivalStats()))
    assert ahead.level == pytest.approx(20.0, rel=0.1)
    assert ahead.quantile(0.85) < 1.15 * ahead.level


def test_the_deviation_of_a_random_walk_grows_with_the_horizon() -> None:
    rng = random.Random(7)
    level, rates = 20.0, []
    for _ in range(180):
        level = max(5.0, level * math.exp(rng.gauss(0.0, 0.08)))
        rates.append(poisson(rng, level))
    arrivals = arrival_stats(rates, WIDTH, 6, ArrivalStats())
    assert arrivals.volatility > 1.3 * PERFMODEL.arrivals.usual_volatility
    near, far = (forecast(rates, WIDTH, seconds, arrivals).deviation for seconds in (30.0, 300.0))
    assert far > 2.0 * near


def test_a_ramp_is_a_trend_and_a_jump_is_not() -> None:
    arrivals = ArrivalStats()
    ramp = [10.0 + 0.5 * slot for slot in range(30)]
    jump = [10.0] * 20 + [20.0] * 10
    assert forecast(ramp, WIDTH, 60.0, arrivals).mean > ramp[-1] + 1.0
    assert forecast(jump, WIDTH, 60.0, arrivals).trend == 0.0


def test_one_jump_does_not_raise_the_volatility() -> None:
    jump = [10.0] * 20 + [20.0] * 10
    assert arrival_stats(jump, WIDTH, 6, ArrivalStats()).volatility < 1.5 * PERFMODEL.arrivals.usual_volatility


def test_the_prior_counts_until_enough_is_measured() -> None:
    before = ArrivalStats(dispersion=8.0, volatility=0.05, slots=60.0)
    assert arrival_stats([1.0, 2.0], WIDTH, 6, before) == before
    assert arrival_stats([20.0] * 60, WIDTH, 6, before).dispersion == pytest.approx(4.0, rel=0.1)


@example([0.0] * 5 + [2.2e-309], 60.0)  # the square of its mean is 0
@given(st.lists(st.floats(0, 1e6), max_size=80), st.floats(0, 1000))
def test_a_forecast_is_finite_and_not_negative_for_any_counts(rates: list[float], horizon: float) -> None:
    arrivals = arrival_stats(rates, WIDTH, 6, ArrivalStats())
    ahead = forecast(rates, WIDTH, horizon, arrivals)
    for share in (0.5, 0.85, 0.975):
        assert 0.0 <= ahead.quantile(share) < math.inf
    assert 0.25 <= arrivals.dispersion <= 50.0


@given(st.floats(0.0, 1e-6), st.lists(st.floats(0, 1e6), max_size=80))
@example(0.0, [10.0 + slot for slot in range(60)])
@example(1e-200, [10.0 + slot for slot in range(60)])
def test_a_forecast_is_finite_and_not_negative_at_any_low_volatility(volatility: float, rates: list[float]) -> None:
    ahead = forecast(rates, WIDTH, 60.0, ArrivalStats(volatility=volatility))
    assert 0.0 <= ahead.quantile(0.85) < math.inf


def test_the_volatility_has_a_minimum() -> None:
    assert (
        arrival_stats([20.0] * 180, WIDTH, 6, ArrivalStats(volatility=0.0)).volatility
        >= PERFMODEL.arrivals.least_volatility
    )


def test_the_lag_correction_is_bounded_by_the_observed_trend() -> None:
    """At a low volatility the level is smoothed over all slots, although only the last third of them rose."""
    rates = [20.0] * 40 + [20.0 + 0.5 * slot for slot in range(20)]
    ahead = forecast(rates, WIDTH, 50.0, ArrivalStats(volatility=PERFMODEL.arrivals.least_volatility))
    assert ahead.trend > 0.0
    assert ahead.level <= rates[-1] + 1.0


def test_the_provisioned_rate_lies_between_the_mean_and_the_peak() -> None:
    # 4.2 requests/s for 65 s where 15 s can be waited: 4.2 · 65 / 80; 0.79 · 65 = 51 wait in the end, 15 s at 3.41.
    assert provisioned_rate(4.2, 2.8, 65.0, 15.0) == pytest.approx(3.4125)
    assert provisioned_rate(4.2, 2.8, 65.0, 0.0) == 4.2
    assert provisioned_rate(3.2, 2.8, 65.0, 15.0) == 2.8  # below the mean the queue would grow for ever


@given(st.floats(0.0, 1e6), st.floats(0.0, 1e6), st.floats(0.0, 1e4), st.floats(0.0, 1e4), st.floats(0.0, 1e4))
def test_more_patience_never_needs_a_higher_rate_and_no_request_waits_longer(
    peak: float, usual: float, seconds: float, patience: float, more: float
) -> None:
    held = provisioned_rate(peak, usual, seconds, patience)
    assert min(peak, usual) <= held <= peak
    assert provisioned_rate(peak, usual, seconds, patience + more) <= held
    rounding = 1e-9 + 1e-14 * peak * seconds
    assert (peak - held) * seconds <= held * patience * (1.0 + 1e-9) + rounding

"""The rate that is planned for: a TTFT target that lets requests wait covers a part of the forecast's peaks."""

import pytest

from sluice_operator.autoscaler.replicas.demand import Demand, measure_demand
from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.arrival_history import ArrivalState
from sluice_operator.autoscaler.signals.freshness import FleetMetrics
from sluice_operator.autoscaler.signals.snapshot import take_snapshot
from sluice_operator.autoscaler.signals.state import SignalState
from sluice_operator.autoscaler.values import Observed
from tests.operator.autoscaler.fleet import spec

RATES = (2.0, 4.0, 3.0, 5.0, 2.5, 4.5, 3.0, 5.5, 3.5, 2.5, 5.0, 4.0) * 5  # requests/s in slots of ten seconds
NOW = 10.0 * len(RATES)


def planned(patience: float, window: int = 0) -> Demand:
    """The demand where a request may wait for `patience` seconds, with this stabilization window."""
    signals = SignalState(arrivals=ArrivalState(tuple((slot, 10.0 * rate) for slot, rate in enumerate(RATES))))
    ttft = max(1, round(1000 * patience / LAW.replicas.patience))
    asked = spec(slo={"ttftMilliseconds": ttft}, scaling={"scaleDownStabilizationSeconds": window})
    return measure_demand(take_snapshot(asked, Observed(), FleetMetrics(), signals, NOW))


def test_a_longer_ttft_target_plans_for_less_of_the_forecast_and_never_for_less_than_the_mean() -> None:
    strict, lenient, patient = planned(0.0), planned(3.0), planned(300.0)
    assert strict.expected > lenient.expected > patient.expected
    assert strict.highest > lenient.highest > patient.highest
    assert patient.expected == patient.highest == pytest.approx(patient.level, rel=0.1)
    assert strict.level == lenient.level == patient.level


def test_patience_covers_less_of_a_peak_that_lasts_for_a_stabilization_window() -> None:
    brief, long = planned(3.0, window=0), planned(3.0, window=180)
    assert long.expected == brief.expected
    assert brief.highest < long.highest < planned(0.0).highest

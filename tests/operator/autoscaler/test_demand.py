"""What is planned for: a restless load counts as far as nobody can wait for it to pass."""

import pytest

from sluice_operator.autoscaler.replicas.demand import Demand, demand
from sluice_operator.autoscaler.signals.freshness import Fresh
from sluice_operator.autoscaler.state import AutoscalerState

RATES = (2.0, 4.0, 3.0, 5.0, 2.5, 4.5, 3.0, 5.5, 3.5, 2.5, 5.0, 4.0) * 5  # requests/s in slots of ten seconds
NOW = 10.0 * len(RATES)


def planned(patience: float, hold: float = 0.0) -> Demand:
    memory = AutoscalerState(slots=tuple((slot, 10.0 * rate) for slot, rate in enumerate(RATES)))
    return demand(memory, Fresh(), NOW, patience, hold)


def test_a_lenient_target_plans_for_less_of_what_may_come_and_for_all_that_does() -> None:
    strict, lenient, patient = planned(0.0), planned(3.0), planned(300.0)
    assert strict.expected > lenient.expected > patient.expected
    assert strict.highest > lenient.highest > patient.highest
    assert patient.expected == patient.highest == pytest.approx(patient.level, rel=0.1)
    assert strict.level == lenient.level == patient.level


def test_scale_in_trusts_patience_less_than_scale_out_does() -> None:
    brief, long = planned(3.0, hold=0.0), planned(3.0, hold=180.0)
    assert long.expected == brief.expected
    assert brief.highest < long.highest < planned(0.0).highest

"""What is planned for: a restless load counts as far as nobody can wait for it to pass."""

from dataclasses import replace

import pytest

from sluice_operator.decide.demand import Demand, demand
from sluice_operator.decide.floors import Range
from sluice_operator.decide.need import Need, need
from sluice_operator.decide.trust import Fresh
from sluice_operator.decide.values import Lengths, Memory, PodView
from tests.operator.decide_fleet import Engine, spec

RATES = (2.0, 4.0, 3.0, 5.0, 2.5, 4.5, 3.0, 5.5, 3.5, 2.5, 5.0, 4.0) * 5  # requests/s in slots of ten seconds
NOW = 10.0 * len(RATES)


def planned(patience: float, hold: float = 0.0) -> Demand:
    memory = Memory(slots=tuple((slot, 10.0 * rate) for slot, rate in enumerate(RATES)))
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


def needed(cached: float, current: int) -> Need:
    """Prompts of 4,000 tokens of which 1,500 are computed for whoever asks, whatever else is cached."""
    pods = tuple(
        (PodView(f"p{k}", "ready", 0.0), replace(Engine().sample(), kv_blocks=60_000.0)) for k in range(current)
    )
    memory = Memory(
        slots=tuple((slot, 10.0 * rate) for slot, rate in enumerate(RATES)),
        lengths=Lengths(NOW, 1000.0, 1000.0, 40_000.0, (1_500.0 + cached) * 1000.0, cached * 1000.0),
        unevenness=0.5,
    )
    seen = Fresh(ready=tuple(pod for pod, _ in pods), known=pods)
    return need(spec(scaling={"maxReplicas": 50}), Range(1, 50), seen, memory, NOW, current)


def test_what_a_leaving_replica_has_cached_is_load_for_those_that_stay() -> None:
    cold, hot, many = needed(0.0, 2), needed(3_000.0, 2), needed(3_000.0, 40)
    assert hot.keep > cold.keep
    assert many.keep < hot.keep  # one of forty takes little along
    assert hot.up == many.up

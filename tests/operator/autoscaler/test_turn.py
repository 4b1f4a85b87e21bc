"""Where the law turns: what it says would have been enough is enough, and a queue before the door orders no replica for itself."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sluice_operator.autoscaler.replicas.bounds import ReplicaRange
from sluice_operator.autoscaler.replicas.capacity_inputs import CapacityInputs
from sluice_operator.autoscaler.replicas.demand import DRAIN, Demand
from sluice_operator.autoscaler.replicas.prediction import Prediction, predict
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_perfmodel.arrival_stats import ArrivalStats
from sluice_perfmodel.capacity import Replica, Work
from tests.operator.autoscaler.fleet import MODEL, spec

REPLICA = Replica(MODEL, kv_tokens=100_000, kv_share=0.8, max_concurrency=64, sheds=True)
KNOWN = CapacityInputs(REPLICA, Work(output=50, uncached=100))
CALM = Demand(expected=10.0, highest=10.0, backlog=0.0, horizon=120.0, arrivals=ArrivalStats(), level=10.0)
MOST = 40


def predicted(
    demand: Demand, current: int, known: CapacityInputs = KNOWN, goal: float = 0.99, confidence: float = 1.0
) -> Prediction:
    return predict(spec(), ReplicaRange(1, MOST), known, demand, AutoscalerState(confidence=confidence), current, goal)


@given(
    rate=st.floats(4.0, 80.0),
    backlog=st.floats(0.0, 300.0),
    goal=st.floats(0.9, 0.99),
    confidence=st.floats(0.5, 1.0),
    sheds=st.booleans(),
)
def test_up_to_the_turn_one_replica_fewer_would_do(
    rate: float, backlog: float, goal: float, confidence: float, sheds: bool
) -> None:
    known = replace(KNOWN, replica=replace(REPLICA, sheds=sheds))
    asked = replace(CALM, expected=rate, highest=rate, backlog=backlog)
    found = predicted(asked, 1, known, goal, confidence)
    assume(1 < found.up <= MOST and found.turn > 0.0)
    at_the_turn = predicted(replace(asked, expected=found.turn * 0.995), 1, known, goal, confidence)
    assert at_the_turn.up <= found.up - 1
    assert predicted(replace(asked, expected=found.turn * 1.02), 1, known, goal, confidence).up >= found.up


@given(rate=st.floats(1.0, 40.0), current=st.integers(2, MOST))
def test_above_the_turn_the_count_would_have_stayed(rate: float, current: int) -> None:
    found = predicted(replace(CALM, expected=rate, highest=rate), current)
    assume(found.keep < current)
    assert predicted(replace(CALM, expected=rate, highest=found.turn * 1.02), current).keep >= current
    assert predicted(replace(CALM, expected=rate, highest=found.turn * 0.995), current).keep < current


@pytest.mark.parametrize(("sheds", "within"), [(True, CALM.horizon), (False, DRAIN)])
def test_who_waits_is_worked_off_until_the_next_replica_serves_where_the_door_turns_away(
    sheds: bool, within: float
) -> None:
    known = replace(KNOWN, replica=replace(REPLICA, sheds=sheds))
    flat_out = predicted(CALM, 1, known).capacity.throughput
    served = CALM.expected * (0.99 if sheds else 1.0)
    count = predicted(CALM, 1, known).up
    room = (count * flat_out - served) * within  # requests that so many replicas work off in that time
    assert predicted(replace(CALM, backlog=0.95 * room), 1, known).up == count
    assert predicted(replace(CALM, backlog=1.05 * room), 1, known).up == count + 1

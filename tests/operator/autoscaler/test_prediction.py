"""The model's recommendation turns where it says, and drains a backlog in the time that it says."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sluice_operator.autoscaler.replicas.demand import Demand
from sluice_operator.autoscaler.replicas.prediction import FleetAssumptions, Prediction, predict
from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.targets import targets
from sluice_perfmodel.arrival_stats import ArrivalStats
from sluice_perfmodel.capacity import Replica, ServiceConditions
from sluice_perfmodel.settings import PERFMODEL
from sluice_perfmodel.workload import Work
from tests.operator.autoscaler.fleet import MODEL, spec

REPLICA = Replica(MODEL, kv_tokens=100_000, kv_share=0.8, max_concurrency=64, sheds=True)
CONDITIONS = ServiceConditions(REPLICA, Work(output=50, uncached=100), targets(spec()), PERFMODEL.limit.margin)
CALM = Demand(expected=10.0, highest=10.0, backlog=0.0, horizon=120.0, arrivals=ArrivalStats(), level=10.0)
MOST = 40


def predicted(
    demand: Demand,
    current: int,
    conditions: ServiceConditions = CONDITIONS,
    goal: float = 0.99,
    confidence: float = 1.0,
) -> Prediction:
    return predict(conditions, demand, FleetAssumptions(current, MOST, confidence), goal)


@given(
    rate=st.floats(4.0, 80.0),
    backlog=st.floats(0.0, 300.0),
    goal=st.floats(0.9, 0.99),
    confidence=st.floats(0.5, 1.0),
    sheds=st.booleans(),
)
def test_one_replica_fewer_is_enough_up_to_the_turning_rate_of_a_scale_out(
    rate: float, backlog: float, goal: float, confidence: float, sheds: bool
) -> None:
    conditions = replace(CONDITIONS, replica=replace(REPLICA, sheds=sheds))
    demand = replace(CALM, expected=rate, highest=rate, backlog=backlog)
    found = predicted(demand, 1, conditions, goal, confidence)
    turn = found.turning_rate
    assume(1 < found.scale_out_to <= MOST and turn > 0.0)
    below = predicted(replace(demand, expected=turn * 0.995), 1, conditions, goal, confidence)
    assert below.scale_out_to <= found.scale_out_to - 1
    above = predicted(replace(demand, expected=turn * 1.02), 1, conditions, goal, confidence)
    assert above.scale_out_to >= found.scale_out_to


@given(rate=st.floats(1.0, 40.0), current=st.integers(2, MOST))
def test_the_count_stays_above_the_turning_rate_of_a_scale_in(rate: float, current: int) -> None:
    found = predicted(replace(CALM, expected=rate, highest=rate), current)
    assume(found.scale_in_floor < current)
    turn = found.turning_rate
    assert predicted(replace(CALM, expected=rate, highest=turn * 1.02), current).scale_in_floor >= current
    assert predicted(replace(CALM, expected=rate, highest=turn * 0.995), current).scale_in_floor < current


@pytest.mark.parametrize(("sheds", "within"), [(True, CALM.horizon), (False, LAW.replicas.backlog_seconds)])
def test_a_backlog_is_drained_over_the_horizon_where_load_is_shed_and_within_a_window_elsewhere(
    sheds: bool, within: float
) -> None:
    conditions = replace(CONDITIONS, replica=replace(REPLICA, sheds=sheds))
    calm = predicted(CALM, 1, conditions)
    served = CALM.expected * (0.99 if sheds else 1.0)
    room = (calm.scale_out_to * calm.capacity.throughput - served) * within  # requests that are drained in that time
    assert predicted(replace(CALM, backlog=0.95 * room), 1, conditions).scale_out_to == calm.scale_out_to
    assert predicted(replace(CALM, backlog=1.05 * room), 1, conditions).scale_out_to == calm.scale_out_to + 1

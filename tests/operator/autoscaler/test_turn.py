"""Where the law turns: what it says would have been enough is enough, and a queue before the door orders no replica for itself."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sluice_operator.autoscaler.replicas.bounds import Range
from sluice_operator.autoscaler.replicas.capacity_plan import Physics
from sluice_operator.autoscaler.replicas.demand import DRAIN, Demand
from sluice_operator.autoscaler.replicas.prediction import Judgement, judge
from sluice_operator.autoscaler.values import Memory
from sluice_perfmodel.arrival_stats import Nature
from sluice_perfmodel.capacity import Replica, Work
from tests.operator.autoscaler.fleet import MODEL, spec

REPLICA = Replica(MODEL, kv_tokens=100_000, kv_share=0.8, max_concurrency=64, sheds=True)
KNOWN = Physics(REPLICA, Work(output=50, uncached=100))
CALM = Demand(expected=10.0, highest=10.0, backlog=0.0, horizon=120.0, nature=Nature(), level=10.0)
MOST = 40


def judged(demand: Demand, current: int, known: Physics = KNOWN, goal: float = 0.99, trust: float = 1.0) -> Judgement:
    return judge(spec(), Range(1, MOST), known, demand, Memory(trust=trust), current, goal)


@given(
    rate=st.floats(4.0, 80.0),
    backlog=st.floats(0.0, 300.0),
    goal=st.floats(0.9, 0.99),
    trust=st.floats(0.5, 1.0),
    sheds=st.booleans(),
)
def test_up_to_the_turn_one_replica_fewer_would_do(
    rate: float, backlog: float, goal: float, trust: float, sheds: bool
) -> None:
    known = replace(KNOWN, replica=replace(REPLICA, sheds=sheds))
    asked = replace(CALM, expected=rate, highest=rate, backlog=backlog)
    found = judged(asked, 1, known, goal, trust)
    assume(1 < found.up <= MOST and found.turn > 0.0)
    at_the_turn = judged(replace(asked, expected=found.turn * 0.995), 1, known, goal, trust)
    assert at_the_turn.up <= found.up - 1
    assert judged(replace(asked, expected=found.turn * 1.02), 1, known, goal, trust).up >= found.up


@given(rate=st.floats(1.0, 40.0), current=st.integers(2, MOST))
def test_above_the_turn_the_count_would_have_stayed(rate: float, current: int) -> None:
    found = judged(replace(CALM, expected=rate, highest=rate), current)
    assume(found.keep < current)
    assert judged(replace(CALM, expected=rate, highest=found.turn * 1.02), current).keep >= current
    assert judged(replace(CALM, expected=rate, highest=found.turn * 0.995), current).keep < current


@pytest.mark.parametrize(("sheds", "within"), [(True, CALM.horizon), (False, DRAIN)])
def test_who_waits_is_worked_off_until_the_next_replica_serves_where_the_door_turns_away(
    sheds: bool, within: float
) -> None:
    known = replace(KNOWN, replica=replace(REPLICA, sheds=sheds))
    flat_out = judged(CALM, 1, known).capacity.throughput
    served = CALM.expected * (0.99 if sheds else 1.0)
    count = judged(CALM, 1, known).up
    room = (count * flat_out - served) * within  # requests that so many replicas work off in that time
    assert judged(replace(CALM, backlog=0.95 * room), 1, known).up == count
    assert judged(replace(CALM, backlog=1.05 * room), 1, known).up == count + 1

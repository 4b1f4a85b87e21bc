"""The error budget: how many of the next requests may miss the SLO so that the last day as a whole meets the target."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_operator.autoscaler.explain.replicas import scaled
from sluice_operator.autoscaler.replicas.demand import Demand, budgeted_quantile
from sluice_operator.autoscaler.replicas.prediction import FleetAssumptions, predict
from sluice_operator.autoscaler.replicas.recommendation import Recommendation
from sluice_operator.autoscaler.replicas.replica_range import ReplicaRange
from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.error_budget import ErrorTally, Outcome, add_outcome, planned_attainment
from sluice_operator.autoscaler.targets import targets
from sluice_perfmodel.arrival_stats import ArrivalStats
from sluice_perfmodel.capacity import Replica, ServiceConditions
from sluice_perfmodel.settings import PERFMODEL
from sluice_perfmodel.workload import throughput
from tests.operator.autoscaler.fleet import MODEL, WORK, Story, spec, with_signals

RATE, AHEAD = 10.0, 240.0
REPLICA = Replica(MODEL, kv_tokens=100_000, kv_share=0.8, max_concurrency=64, sheds=True)
CONDITIONS = ServiceConditions(REPLICA, WORK, targets(spec()), PERFMODEL.limit.margin)
LEAST, MOST = LAW.signals.budget_least, LAW.signals.budget_most
OUT, IN = LAW.replicas.scale_out_quantile, LAW.replicas.scale_in_quantile


def after(met: float, missed: float) -> float:
    return planned_attainment(ErrorTally(0.0, met, missed), 0.99, RATE, AHEAD)


def test_without_any_request_the_plan_is_the_target() -> None:
    assert planned_attainment(ErrorTally(), 0.99, RATE, AHEAD) == 0.99
    assert planned_attainment(ErrorTally(0.0, 1000.0, 0.0), 0.99, 0.0, AHEAD) == 0.99


def test_a_time_without_misses_relaxes_the_plan_and_many_misses_never_tighten_it_beyond_the_target() -> None:
    assert after(36_000.0, 0.0) < after(6_000.0, 0.0) < after(6_000.0, 40.0) <= 0.99
    assert after(36_000.0, 0.0) == pytest.approx(1.0 - MOST * 0.01)
    assert after(30_000.0, 6_000.0) == pytest.approx(1.0 - LEAST * 0.01)


@given(met=st.floats(0, 1e6), missed=st.floats(0, 1e6), rate=st.floats(0, 1e4), target=st.floats(0.5, 0.9999))
def test_the_planned_misses_stay_within_their_bounds(met: float, missed: float, rate: float, target: float) -> None:
    planned = planned_attainment(ErrorTally(0.0, met, missed), target, rate, AHEAD)
    assert LEAST - 1e-6 <= (1.0 - planned) / (1.0 - target) <= MOST + 1e-6


@pytest.mark.parametrize(("hours", "spent"), [(1, 0.5), (6, 0.9), (24, 0.97)])
def test_a_fleet_that_misses_all_that_is_planned_keeps_half_of_an_hours_budget(hours: int, spent: float) -> None:
    """The load is steady, and each interval misses just what was planned: the worst that a right model does."""
    tally, met, missed = ErrorTally(), 0.0, 0.0
    for interval in range(1, hours * 3600 // 5):
        share = 1.0 - planned_attainment(tally, 0.99, RATE, AHEAD)
        good, bad = 5.0 * RATE * (1.0 - share), 5.0 * RATE * share
        tally, met, missed = add_outcome(tally, Outcome(good, bad, 0.0), 5.0 * interval), met + good, missed + bad
    assert missed / (met + missed) <= 0.01 + 1e-9
    assert missed / (met + missed) > spent * 0.01


def test_the_reserve_is_hours_of_the_current_load_and_no_share_of_the_past() -> None:
    """Half of what two million requests allow was missed. A load whose hour's reserve is small beside the other half
    may spend it; a load whose reserve is all of it plans for the target."""
    calm = ErrorTally(0.0, 2e6, 1e4)
    left = 0.01 * (calm.met + calm.missed) - calm.missed
    reserve = LAW.signals.budget_reserve * LAW.signals.budget_reserve_base_seconds  # seconds of the load
    steady, rush = 50.0, left / (0.01 * reserve) * 1.05
    assert planned_attainment(calm, 0.99, steady, AHEAD) == pytest.approx(1.0 - MOST * 0.01)
    assert planned_attainment(calm, 0.99, rush, AHEAD) == pytest.approx(0.99)


def test_misses_decay_within_days() -> None:
    tally, day = add_outcome(ErrorTally(), Outcome(0.0, 1000.0, 0.0), 0.0), LAW.signals.error_tally_seconds
    later = [add_outcome(tally, Outcome(0.0, 0.0, 0.0), days * day).missed for days in (0.0, 1.0, 5.0)]
    assert later[0] > 2.0 * later[1] > 50.0 * later[2]


def test_requests_that_may_be_rejected_order_no_replica() -> None:
    """The load is just above what two replicas serve at full throughput. Two are enough while many may be missed; three
    are needed when the target must be met at once."""
    top = throughput(MODEL, WORK, 13)

    def desired(missed: float) -> int:
        fleet = Story(spec=spec(scaling={"maxReplicas": 9}), replicas=2)
        fleet.run(seconds=900, rate=2.0 * top * 0.85)
        fleet.state = with_signals(fleet.state, errors=ErrorTally(fleet.now, 1e6, missed))
        fleet.run(seconds=60, rate=2.0 * top * 1.02)
        return fleet.decisions[-1][1].desired

    assert (desired(0.0), desired(1e5)) == (2, 3)


def test_the_planned_quantile_falls_with_the_allowed_misses_to_the_median_and_no_further() -> None:
    assert budgeted_quantile(OUT, 1.0) == pytest.approx(OUT)
    assert OUT > budgeted_quantile(OUT, 2.0) > budgeted_quantile(OUT, 3.0) > 0.5
    assert budgeted_quantile(OUT, 100.0) == budgeted_quantile(IN, 100.0) == 0.5


def test_the_sentence_of_a_scale_out_states_the_attainment_that_is_enough_now() -> None:
    demand = Demand(expected=20.0, highest=21.0, backlog=0.0, horizon=60.0, arrivals=ArrivalStats(), level=19.0)
    prediction = predict(CONDITIONS, demand, FleetAssumptions(2, 40), 0.99)
    then, more = prediction.attainment, prediction.scale_out_to
    assert prediction.attainment_now < 0.95
    assert then >= 0.99

    def sentence(planned: float) -> str:
        recommendation = Recommendation(more - 1, ReplicaRange(1, 40), more, more, demand, planned, prediction)
        return scaled(spec(), recommendation, more, 60.0).sentence

    target = f"{100 * then:.1f} % with {more} (target 99 %"
    assert f"{target}). Up to {prediction.turning_rate:.0f} req/s {more - 1} would do." in sentence(0.99)
    assert f"{target}, 95.0 % is enough by the error budget)" in sentence(0.95)

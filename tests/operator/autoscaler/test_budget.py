"""The error budget: what may be missed next, so that the last day as a whole keeps the promise."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_operator.autoscaler.explain.sentences import scaled
from sluice_operator.autoscaler.replicas.bounds import ReplicaRange
from sluice_operator.autoscaler.replicas.capacity_inputs import CapacityInputs
from sluice_operator.autoscaler.replicas.demand import HIGHEST, PLANNED, Demand, eased
from sluice_operator.autoscaler.replicas.prediction import predict
from sluice_operator.autoscaler.replicas.recommendation import Recommendation
from sluice_operator.autoscaler.signals.error_budget import HOUR, LEAST, MOST, RESERVE, planned
from sluice_operator.autoscaler.signals.error_tally import DAY, count
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Outcome, Tally
from sluice_perfmodel.arrival_stats import ArrivalStats
from sluice_perfmodel.capacity import Replica, throughput
from tests.operator.autoscaler.fleet import MODEL, WORK, Story, spec

RATE, AHEAD = 10.0, 240.0
KNOWN = CapacityInputs(Replica(MODEL, kv_tokens=100_000, kv_share=0.8, max_concurrency=64, sheds=True), WORK)


def after(met: float, missed: float) -> float:
    return planned(Tally(0.0, met, missed), 0.99, RATE, AHEAD)


def test_who_has_served_nobody_yet_plans_for_what_is_promised() -> None:
    assert planned(Tally(), 0.99, RATE, AHEAD) == 0.99
    assert planned(Tally(0.0, 1000.0, 0.0), 0.99, 0.0, AHEAD) == 0.99


def test_a_time_without_a_miss_allows_more_of_the_next_minutes_and_a_bad_one_no_more_than_was_promised() -> None:
    assert after(36_000.0, 0.0) < after(6_000.0, 0.0) < after(6_000.0, 40.0) <= 0.99
    assert after(36_000.0, 0.0) == pytest.approx(1.0 - MOST * 0.01)
    assert after(30_000.0, 6_000.0) == pytest.approx(1.0 - LEAST * 0.01)


@given(met=st.floats(0, 1e6), missed=st.floats(0, 1e6), rate=st.floats(0, 1e4), promised=st.floats(0.5, 0.9999))
def test_never_more_than_a_few_times_the_promised_misses(
    met: float, missed: float, rate: float, promised: float
) -> None:
    allowed = (1.0 - planned(Tally(0.0, met, missed), promised, rate, AHEAD)) / (1.0 - promised)
    assert LEAST - 1e-6 <= allowed <= MOST + 1e-6


@pytest.mark.parametrize(("hours", "spent"), [(1, 0.5), (6, 0.9), (24, 0.97)])
def test_a_fleet_that_misses_all_that_it_may_keeps_back_half_of_an_hours_budget(hours: int, spent: float) -> None:
    """A steady load, each look missing just what was planned: the worst that a right model does."""
    kept, met, missed = Tally(), 0.0, 0.0
    for look in range(1, hours * 3600 // 5):
        share = 1.0 - planned(kept, 0.99, RATE, AHEAD)
        good, bad = 5.0 * RATE * (1.0 - share), 5.0 * RATE * share
        kept, met, missed = count(kept, Outcome(good, bad, 0.0), 5.0 * look), met + good, missed + bad
    assert missed / (met + missed) <= 0.01 + 1e-9
    assert missed / (met + missed) > spent * 0.01


def test_what_is_kept_back_is_hours_of_the_load_as_it_is_and_no_share_of_the_past() -> None:
    """Half of what two million requests allow was missed: a load whose hour's reserve is small beside the other half may spend
    it, one whose reserve is all of it plans for what is promised."""
    calm = Tally(0.0, 2e6, 1e4)
    left = 0.01 * (calm.met + calm.missed) - calm.missed
    steady, rush = 50.0, left / (0.01 * RESERVE * HOUR) * 1.05
    assert planned(calm, 0.99, steady, AHEAD) == pytest.approx(1.0 - MOST * 0.01)
    assert planned(calm, 0.99, rush, AHEAD) == pytest.approx(0.99)


def test_misses_are_forgotten_within_days() -> None:
    kept = count(Tally(), Outcome(0.0, 1000.0, 0.0), 0.0)
    later = [count(kept, Outcome(0.0, 0.0, 0.0), days * DAY).missed for days in (0.0, 1.0, 5.0)]
    assert later[0] > 2.0 * later[1] > 50.0 * later[2]


def test_those_whom_the_door_may_turn_away_order_no_replica() -> None:
    """A load a hair beyond what two replicas serve flat out: where much may be missed two are enough, where the promise
    is to be kept at once three are."""
    top = throughput(MODEL, WORK, 13)

    def asked(missed: float) -> int:
        fleet = Story(spec=spec(scaling={"maxReplicas": 9}), replicas=2)
        fleet.run(seconds=900, rate=2.0 * top * 0.85)
        fleet.memory = replace(fleet.memory, kept=Tally(fleet.now, 1e6, missed))
        fleet.run(seconds=60, rate=2.0 * top * 1.02)
        return fleet.decisions[-1][1].desired

    assert (asked(0.0), asked(1e5)) == (2, 3)


def test_the_quantile_that_is_planned_for_falls_to_the_median_and_no_further() -> None:
    assert eased(PLANNED, 1.0) == pytest.approx(PLANNED)
    assert PLANNED > eased(PLANNED, 2.0) > eased(PLANNED, 3.0) > 0.5
    assert eased(PLANNED, 100.0) == eased(HIGHEST, 100.0) == 0.5


def test_a_scale_up_says_what_is_enough_for_now() -> None:
    asked = Demand(expected=20.0, highest=21.0, backlog=0.0, horizon=60.0, arrivals=ArrivalStats(), level=19.0)
    prediction = predict(spec(), ReplicaRange(1, 40), KNOWN, asked, AutoscalerState(), 2, 0.99)
    (now, then), fewer, more = prediction.predicted, prediction.up - 1, prediction.up
    assert now < 0.95
    assert then >= 0.99

    def said(goal: float) -> str:
        return scaled(spec(), Recommendation(more, more, asked, goal, prediction), fewer, more, 60.0).sentence

    promised = f"{100 * then:.1f} % with {more} (target 99 %"
    assert f"{promised}). Up to {prediction.turn:.0f} req/s {fewer} would do." in said(0.99)
    assert f"{promised}, 95.0 % is enough after what was kept so far)" in said(0.95)

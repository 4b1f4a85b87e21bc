"""The past as the rules read it: slots, comparisons with what came, and counts of arrivals."""

import itertools
from dataclasses import replace

import pytest

from sluice_operator.autoscaler.replicas.history import History, between, extended
from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.scrape_deltas import FleetDelta, pod_delta, pod_totals
from sluice_operator.autoscaler.values import ShadowTotals
from sluice_perfmodel.shadow_queues import LOADS
from tests.operator.autoscaler.fleet import MEMORY, Engine

EVERY = 5.0  # seconds between two scrapes


def counted(requests: float = 1.0, late: float = 0.0, missed: float = 0.0, again: float = 0.0) -> FleetDelta:
    """What the fleet counted between two scrapes; `again`: rejections that another replica then served."""
    before = replace(Engine().sample(), shadow=ShadowTotals(0.0, 0.0, (0.0,) * len(LOADS)))
    after = replace(
        before,
        arrived_total=before.arrived_total + requests,
        slo_missed_total=before.slo_missed_total + missed,
        rejected_total=before.rejected_total + again,
        offered_again_total=before.offered_again_total + again,
        shadow=ShadowTotals(requests, 0.0, (late,) * len(LOADS)),
    )
    delta = pod_delta(pod_totals("a", 0.0, before), pod_totals("a", EVERY, after), 100.0, EVERY, 2.0)
    assert delta is not None
    return delta


def observed(past: History, seconds: float, ready: int = 1, delta: FleetDelta | None = None) -> History:
    """The history after so many seconds of the same scrapes."""
    for _ in range(round(seconds / EVERY)):
        past = extended(past, delta or counted(), ready, MEMORY, past.seen_at + EVERY)
    return past


def test_the_past_is_kept_in_slots_and_forgotten_after_the_memory() -> None:
    past = observed(History(), 2.0 * MEMORY)
    slots = past.slots
    newest = [slot for slot in slots if slot.begun >= past.seen_at - LAW.rise_seconds]
    assert all(slot.ended - slot.begun <= LAW.slot_seconds for slot in newest)
    assert all(slot.ended - slot.begun <= LAW.rise_seconds for slot in slots)
    assert len(slots) <= MEMORY / LAW.rise_seconds + LAW.rise_seconds / LAW.slot_seconds + 1
    assert all(one.ended == other.begun for one, other in itertools.pairwise(slots))
    kept = slots[-1].ended - slots[0].begun
    assert MEMORY - EVERY <= kept <= MEMORY + LAW.rise_seconds
    assert sum(slot.requests for slot in slots) == pytest.approx(kept / EVERY)


def test_a_slot_belongs_to_one_number_of_replicas() -> None:
    past = observed(observed(History(), 60.0), 60.0, ready=2)
    assert [slot.replicas for slot in past.slots] == sorted(slot.replicas for slot in past.slots)
    assert {slot.replicas for slot in past.slots} == {1, 2}


def test_scrapes_right_after_a_change_of_the_fleet_enter_no_slot() -> None:
    """The shadow queues still hold the requests of the fleet before."""
    past = observed(History(), 60.0)
    overloaded = observed(past, LAW.usual_scrape_seconds, ready=2, delta=counted(late=1.0))
    assert overloaded.slots == past.slots
    assert observed(overloaded, 10.0, ready=2).slots[-1].replicas == 2


def test_the_first_scrape_of_a_new_operator_enters_a_slot() -> None:
    assert len(observed(History(), EVERY).slots) == 1


def test_only_the_misses_of_a_settled_fleet_are_compared() -> None:
    """Misses right after a change are those of the fleet before."""
    calm = observed(History(), LAW.settled_seconds + 60.0)
    changing = observed(calm, LAW.settled_seconds, ready=2, delta=counted(missed=1.0))
    assert sum(one.missed for one in changing.comparisons) == 0.0
    settled = observed(changing, LAW.settled_seconds + 60.0, ready=2, delta=counted(missed=1.0))
    assert sum(one.missed for one in settled.comparisons) > 0.0


def test_a_rejection_that_another_replica_served_is_no_miss() -> None:
    past = observed(History(), 300.0, delta=counted(missed=0.5, again=2.0))
    requests = sum(one.requests for one in past.comparisons)
    assert sum(one.missed for one in past.comparisons) == pytest.approx(0.5 * requests)


def test_an_hour_of_comparisons_is_bounded() -> None:
    past = observed(History(), 1.5 * LAW.error_seconds)
    assert len(past.comparisons) <= 13
    assert LAW.error_seconds <= past.comparisons[-1].ended - past.comparisons[0].begun <= 1.1 * LAW.error_seconds


def test_arrivals_are_counted_per_bin_and_kept_for_two_trends() -> None:
    past = observed(History(), 2.0 * LAW.trend_seconds + 600.0)
    assert {round(rate, 9) for _, rate in past.arrivals} == {1.0 / EVERY}
    assert len(past.arrivals) == pytest.approx(2.0 * LAW.trend_seconds / LAW.bin_seconds, abs=1)


def test_a_scrape_without_a_delta_is_no_measurement() -> None:
    past = observed(History(), 60.0)
    later = extended(past, None, 1, MEMORY, past.seen_at + EVERY)
    assert (later.slots, later.comparisons) == (past.slots, past.comparisons)


def test_a_clock_that_begins_anew_keeps_only_the_restored_count() -> None:
    past = replace(observed(History(), 300.0), restored=4, restored_at=0.0)
    begun = past.without_measurements(10.0)
    assert (begun.slots, begun.comparisons, begun.arrivals) == ((), (), ())
    assert (begun.restored, begun.restored_at) == (4, 10.0)


def test_slots_between_two_times_are_those_that_ended_there() -> None:
    slots = observed(History(), 60.0).slots
    assert between(slots, slots[0].ended, slots[-1].ended) == slots[1:]

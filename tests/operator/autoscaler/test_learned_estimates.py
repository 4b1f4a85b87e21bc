"""Estimates that are learned over minutes and kept over a restart, and the reports of rejected requests."""

import itertools
import math

import pytest

from sluice_operator.autoscaler.handover import Estimates, estimates_of, restored_state
from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals import cold_start
from sluice_operator.autoscaler.signals.freshness import fleet_metrics
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import ColdStart, Decision, Observed, PodView
from tests.operator.autoscaler.fleet import MEMORY, Story, spec


def busy_day() -> Story:
    story = Story(cold_start=40)
    story.run(60, 1.25)
    story.run(200, 4.0)
    return story


def saved(story: Story) -> Estimates:
    decision: Decision = story.decisions[-1][1]
    assert decision.forecast is not None
    return estimates_of(story.state, decision.forecast.remembered)


def test_cold_starts_are_measured_per_phase_and_become_the_time_that_growth_is_planned_for() -> None:
    story = busy_day()
    start = cold_start.median_start(story.state.signals.cold_starts)
    assert start is not None and start.total == pytest.approx(40, abs=5)
    assert start.schedule + start.pull + start.load + start.warm == start.total
    leads = [dict(r.numbers)["leadSeconds"] for _, d in story.decisions for r in d.reasons if r.dial == "replicas"]
    assert leads[0] == LAW.usual_cold_start_seconds  # nothing was measured yet
    story.run(60, 9.0)
    again = next(r for _, d in story.decisions[-12:] for r in d.reasons if r.dial == "replicas")
    assert dict(again.numbers)["leadSeconds"] == start.total


def test_only_the_newest_starts_are_kept_and_each_once() -> None:
    story = Story()
    for number in range(40):
        story.started["chat-1"] = ColdStart(0.0, 0.0, float(number), 0.0, float(number))
        name = story._name()
        story.engines[name] = story.engines.pop(next(iter(story.engines)))
        story.started[name] = ColdStart(0.0, 0.0, float(number), 0.0, float(number))
        story.now += 5
        story.decide()
        story.decide()
    totals = [start.total for _, start in story.state.signals.cold_starts.starts]
    assert totals == [float(number) for number in range(24, 40)]


def test_a_new_operator_process_restores_cold_starts_and_lengths() -> None:
    story = busy_day()
    before = story.state
    story.state = restored_state(saved(story))
    assert story.state.signals.cold_starts.starts == before.signals.cold_starts.starts
    story.replicas = len(story.engines)
    story.now += 5
    first = story.decide()
    assert first.cold_start is not None and first.forecast is not None
    assert saved(story).output_tokens == pytest.approx(40, rel=0.2)  # with the first scrape
    assert first.replicas == len(story.engines)


def handed_over(story: Story) -> Story:
    """The story under a new operator process, which knows only what is saved."""
    story.state = restored_state(saved(story))
    return story


def test_a_new_operator_process_keeps_the_remembered_count_for_as_long_as_a_memory_lasts() -> None:
    story = busy_day()
    story.run(300, 0.3)
    assert story.replicas == 2
    began = story.now
    handed_over(story)
    later = story.run(MEMORY, 0.3)
    assert {d.replicas for d in later} == {2}
    assert later[-1].forecast is not None and later[-1].forecast.remembered == 2
    story.run(300, 0.3)
    fell = next(at for at, d in story.decisions if at > began and d.replicas == 1)
    window = story.spec.scaling.scale_down_stabilization_seconds
    assert MEMORY + window <= fell - began <= MEMORY + window + 15


def test_what_is_remembered_orders_no_replica_beyond_the_range() -> None:
    wide = Story(spec=spec(scaling={"maxReplicas": 8}), replicas=8)
    wide.run(60, 25.0)
    assert wide.decisions[-1][1].forecast is not None and wide.decisions[-1][1].forecast.remembered > 3
    handed_over(wide).spec = spec()
    wide.run(5, 1.0)
    assert wide.replicas == 3


@pytest.mark.parametrize("rate", [1.25, 2.0, 3.0])
def test_a_new_operator_process_takes_the_load_that_it_finds_for_no_growth(rate: float) -> None:
    story = Story()
    story.run(200, rate)
    assert story.replicas == 1
    handed_over(story)
    found = story.run(300, rate)
    assert {d.replicas for d in found} == {1}
    assert {d.forecast.growth for d in found if d.forecast is not None} == {1.0}


def test_invalid_estimates_are_left_out() -> None:
    start = ColdStart(*(-5.0 for _ in cold_start.PHASES))
    wrong = Estimates((("a", start),), remembered=-1, output_tokens=math.nan, prompt_tokens=1e30, cached_tokens=-1.0)
    assert restored_state(wrong) == AutoscalerState()


def test_estimates_that_were_just_restored_are_the_saved_ones() -> None:
    before = saved(busy_day())
    assert before.output_tokens and before.prompt_tokens and before.cold_starts
    assert estimates_of(restored_state(before), before.remembered) == before


def test_rejections_are_reported_once_with_what_would_end_them() -> None:
    story = Story(spec=spec(scaling={"maxReplicas": 1}))
    story.run(60, 1.25)
    story.run(120, 8.0)
    refused = [reason for _, d in story.decisions for reason in d.reasons if reason.binding == "Refusing"]
    assert len(refused) == 1
    assert "requests rejected in" in refused[0].sentence
    assert "maxReplicas is 1: raise it." in refused[0].sentence
    assert dict(refused[0].numbers)["refused"] >= 1


def test_a_single_rejection_is_reported_in_the_singular() -> None:
    story = Story(spec=spec(scaling={"maxReplicas": 1}))
    story.run(60, 0.25)
    for name in ("arrived_total", "rejected_total"):
        story.engines["chat-1"].totals[name] += 1.0
    story.run(5, 0.25)
    assert any(sentence.startswith("1 request rejected in") for sentence in story.sentences("admission"))


def test_a_starting_replica_gives_the_remaining_seconds() -> None:
    story = Story(cold_start=100)
    story.run(60, 1.25)
    story.run(60, 9.0)
    left = [d.retry_after for _, d in story.decisions[-6:]]
    assert all(one is not None and one > 0 for one in left)
    fleet = fleet_metrics(story.observed(), 5.0, story.now)
    assert cold_start.remaining_seconds(story.state.signals.cold_starts, fleet, story.now) == left[-1]


def test_recurring_rejections_are_reported_once_per_interval() -> None:
    story = Story(spec=spec(scaling={"maxReplicas": 1}))
    story.run(60, 1.25)
    for _ in range(24):
        story.run(20, 12.0)
        story.run(60, 0.3)
    said = [at for at, d in story.decisions for reason in d.reasons if reason.binding == "Refusing"]
    assert len(said) >= 2
    assert all(later - sooner >= LAW.trend_seconds for sooner, later in itertools.pairwise(said))


def test_each_cold_start_is_recorded_once_in_a_fleet_larger_than_the_record() -> None:
    story = Story(spec=spec(scaling={"minReplicas": 24, "maxReplicas": 24}), replicas=24)
    story.started = {name: ColdStart(0.0, 0.0, place, 0.0, place) for place, name in enumerate(story.engines, start=1)}
    story.decide()
    first = story.state.signals.cold_starts.starts
    for _ in range(3):
        story.now += 0.5
        story.decide()
        assert story.state.signals.cold_starts.starts == first
    before = [pod for pod, _ in first]
    story.state = restored_state(estimates_of(story.state, 0))
    story.now += 5
    story.decide()
    assert [
        pod for pod, _ in story.state.signals.cold_starts.starts
    ] == before  # starts that it does not list are older


def test_a_late_start_is_expected_after_the_next_scrape() -> None:
    def remaining(age: float) -> float | None:
        pod = PodView("a", "loading", since=0.0, start_age=age)
        fleet = fleet_metrics(Observed(pods=(pod,)), 5.0, 10.0)
        return cold_start.remaining_seconds(cold_start.ColdStartState(), fleet, 10.0)

    usual = LAW.usual_cold_start_seconds
    assert remaining(3.0 * 3600) == LAW.usual_scrape_seconds
    assert remaining(20.0) == usual - 20.0

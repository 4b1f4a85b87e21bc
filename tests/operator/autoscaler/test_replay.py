"""What the replay of the recent past adds to a deployment's day: memory, growth, and the correction by misses."""

import math
from dataclasses import dataclass, field, replace

import pytest

from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.values import ColdStart, Decision, ForecastStatus, Observed, Reason
from sluice_perfmodel.shadow_queues import LOADS
from sluice_perfmodel.step_time import StepTimeModel
from tests.operator.autoscaler.fleet import MEMORY, MODEL, Story, spec

CALM, BURST, OVER = 1.0, 6.0, 5.0  # requests per second; one engine serves 3.7
WIDE = spec(scaling={"maxReplicas": 20})


@dataclass
class Learning(Story):
    """A story whose replicas publish `model`; one that has just started publishes none for its first seconds."""

    model: StepTimeModel = MODEL
    learning: float = 0.0
    _ready: dict[str, float] = field(default_factory=dict)

    def serve(self, rate: float, seconds: float, pieces: int = 10) -> None:
        for name, engine in self.engines.items():
            young = name in self.started and self.now - self._ready.setdefault(name, self.now) < self.learning
            engine.model = replace(self.model, steps=3) if young else self.model
        super().serve(rate, seconds, pieces)


@dataclass
class Flapping(Story):
    """A story in which one replica is ready, then for as long is not, and so on."""

    period: float = math.inf

    def observed(self) -> Observed:
        whole, name = super().observed(), next(iter(self.engines))
        if int(self.now // self.period) % 2 == 0:
            return whole
        pods = [replace(pod, phase="loading", since=self.now) if pod.name == name else pod for pod in whole.pods]
        return replace(whole, pods=tuple(pods))


def calm() -> Story:
    """One replica after more than a whole memory of a calm load."""
    story = Story(spec=WIDE)
    story.run(MEMORY + 60, CALM)
    assert story.replicas == 1
    return story


def moves(story: Story) -> list[tuple[float, Reason]]:
    """The changes of the count, with their times."""
    return [(at, reason) for at, d in story.decisions for reason in d.reasons if reason.dial == "replicas"]


def forecast(decision: Decision) -> ForecastStatus:
    assert decision.forecast is not None
    return decision.forecast


def missed(story: Story) -> float:
    """Requests that missed the SLO so far, on the replicas that are ready."""
    return sum(engine.totals.get("slo_missed_total", 0.0) for engine in story.engines.values())


# --- memory ----------------------------------------------------------------------------------------------------


def test_a_recurring_burst_keeps_its_replicas_for_a_quarter_of_an_hour_and_not_longer() -> None:
    story = calm()
    for _ in range(4):
        story.run(20, BURST)
        ended, late = story.now, missed(story)
        story.run(580, CALM)
        assert story.replicas == 2
    assert missed(story) - late < 1.0, "the bursts after the first find two replicas"
    story.run(900, CALM)
    (_, out), (fell, back) = moves(story)
    assert (out.binding, out.after, back.after) == ("RecentLoad", 2, 1)
    window = WIDE.scaling.scale_down_stabilization_seconds
    assert MEMORY <= fell - ended <= MEMORY + window + 30


@pytest.mark.parametrize("rate", [2.0, 4.0])
def test_a_burst_of_five_seconds_changes_no_count(rate: float) -> None:
    story = calm()
    assert {d.desired for d in [*story.run(5, rate), *story.run(120, CALM)]} == {1}


@pytest.mark.parametrize("period", [5.0, 10.0, 15.0])
def test_a_replica_whose_readiness_flaps_does_not_empty_the_memory(period: float) -> None:
    story = Flapping(spec=WIDE, replicas=3)
    story.run(60, 9.0)
    story.period = period
    assert {d.replicas for d in story.run(2.0 * MEMORY, 9.0)} == {3}
    story.run(60, 25.0)
    assert story.replicas is not None and story.replicas > 3


def test_no_replica_is_removed_while_another_one_starts() -> None:
    story = Story(spec=WIDE, cold_start=1500)
    story.run(60, CALM)
    story.run(60, OVER)
    assert story.replicas == 2
    assert {d.replicas for d in story.run(1300, 0.1)} == {2}
    assert story.loading
    story.run(300, 0.1)
    assert story.replicas == 1


def test_the_replay_knows_no_larger_fleet_than_eight_times_the_ready_one() -> None:
    story = Story(spec=spec(scaling={"maxReplicas": 200}), cold_start=100)
    story.run(60, CALM)
    story.run(90, 400.0)
    assert story.replicas is not None and 2 <= story.replicas <= 1 / LOADS[0]


def test_requests_that_no_number_of_replicas_serves_in_time_order_none() -> None:
    story = Learning(spec=WIDE, model=replace(MODEL, prefill_token=0.04))  # 2.4 s for a prompt
    found = story.run(300, 3.0)
    assert {d.desired for d in found} == {1}
    assert forecast(found[-1]).predicted == 0.0


# --- the lasting load and its growth -----------------------------------------------------------------------------


def ordered_at(start: float) -> float:
    """The rate at which a second replica is ordered during a steady rise, where a cold start takes `start` seconds."""
    story = Story(spec=WIDE, cold_start=start)
    story.started["chat-1"] = ColdStart(0.0, 0.0, start, 0.0, start)
    story.run(300, CALM)
    rate = CALM
    while story.replicas == 1:
        rate += 0.1
        found = story.run(30, rate)
    assert moves(story)[0][1].binding in ("LastingLoad", "Throughput")
    assert forecast(found[-1]).growth > 1.0
    return rate


def test_a_lasting_rise_is_planned_for_at_its_growth_until_a_replica_is_ready() -> None:
    soon, late = ordered_at(200.0), ordered_at(20.0)
    assert late - soon == pytest.approx(180.0 * 0.1 / 30.0, abs=0.15)
    assert {d.desired for d in Story(spec=WIDE).run(600, soon)} == {1}, "at this rate one replica is enough"


def test_the_reason_of_a_growing_load_has_its_growth_and_the_time_that_it_is_planned_for() -> None:
    story = Story(spec=WIDE, cold_start=200)
    story.run(300, CALM)
    for place in range(1, 41):
        story.run(30, CALM + 0.1 * place)
    sentence = story.sentences()[0]
    assert sentence.startswith(
        "1 → 2 replicas: needed for the load of the last minute at its growth. Of its requests at 1."
    )
    assert "times its load, as the trend gives in 60 s (cold start), 2 replicas would have served" in sentence
    assert "(target 99 %)" in sentence


def test_an_uneven_load_is_no_growth() -> None:
    story = calm()
    found: list[Decision] = []
    for _ in range(20):
        found += [*story.run(15, 0.5 * CALM), *story.run(20, 1.5 * CALM)]
    assert {forecast(d).growth for d in found} == {1.0}


@pytest.mark.parametrize("learning", [0.0, 10.0])
@pytest.mark.parametrize(("rate", "most"), [(4.0, 2), (5.0, 2), (7.0, 3), (10.0, 4)])
def test_misses_of_a_smaller_fleet_order_nothing_for_the_larger_one(rate: float, most: int, learning: float) -> None:
    """While new replicas have no model, too: the others' replay is enough."""
    story = Learning(spec=WIDE, learning=learning)
    story.run(60, CALM)
    assert max(d.desired for d in story.run(600, rate)) == most


@pytest.mark.parametrize("interval", [1.0, 15.0, 30.0, 60.0])
def test_a_step_orders_about_as_much_however_often_engines_are_scraped(interval: float) -> None:
    story = Story(spec=WIDE, interval=interval)
    story.run(600, CALM)
    assert max(d.desired for d in story.run(900, 9.0)) <= 5  # three serve it


# --- the correction by misses --------------------------------------------------------------------------------------


def mistaken(factor: float, rate: float) -> Learning:
    """A load for two replicas, after an hour on engines that publish `factor` of their step times."""
    story = Learning(spec=WIDE, model=MODEL.scaled(factor))
    story.run(600, CALM)
    story.run(3000, rate)
    return story


def test_a_model_that_is_too_fast_by_a_quarter_is_corrected_by_the_misses_that_came() -> None:
    story = mistaken(0.75, 4.2)
    first = moves(story)[0][1]
    assert (story.replicas, len(moves(story))) == (2, 1)
    assert "More requests missed the SLO than the replay says, so it counts 1." in first.sentence
    found = forecast(story.decisions[-1][1])
    assert found.predicted is not None and found.attained is not None
    assert found.predicted > found.attained > 0.99
    assert found.remembered == 2, "the memory is replayed at the corrected load"
    assert 1.0 < found.model_error <= LAW.error_most
    story.run(LAW.error_seconds, CALM)
    assert forecast(story.decisions[-1][1]).model_error == 1.0
    assert story.replicas == 1


def test_the_replay_of_a_right_model_is_not_corrected() -> None:
    story = Story(spec=WIDE)
    found = story.run(1200, 3.0)
    assert {forecast(d).model_error for d in found} == {1.0}
    assert forecast(found[-1]).predicted == forecast(found[-1]).attained == 1.0

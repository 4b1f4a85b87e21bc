"""Random faults of engines and scrapes over minutes: counts and limits stay in range, scale-in waits, no flapping."""

import itertools
import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_operator.autoscaler import decide
from sluice_operator.autoscaler.replicas.history import History
from sluice_operator.autoscaler.settings import LAW
from sluice_operator.autoscaler.signals.histograms import BOUNDS
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import ColdStart, Decision, EngineSample, Histogram, Observed, PodView
from tests.operator.autoscaler.fleet import MEMORY, Engine, Story, spec
from tests.operator.runtime.memory_size import size_of

WINDOW = 20
KB = 1024
LOW, HIGH = 2, 6
FINE = ("fine",) * HIGH
UNSEEN = {"nan", "negative", "absurd", "missing", "stale", "future"}  # of such a pod nothing can be believed
BAD = sorted(UNSEEN | {"reset", "overflow"})


@dataclass(frozen=True)
class Step:
    """What one interval brings: requests per second, seconds until it is looked at, and each pod's weather."""

    rate: float
    seconds: float
    weather: tuple[str, ...]


@dataclass(frozen=True)
class Stretch:
    """One load under a clear sky, then for a few looks bad weather over some of the pods."""

    rate: float
    fine: int
    bad: tuple[tuple[str, ...], ...]
    seconds: float = 5.0

    def steps(self) -> list[Step]:
        return [Step(self.rate, self.seconds, weather) for weather in (*[FINE] * self.fine, *self.bad)]


# Bad weather begins where a fall may be due, and is short: a fleet that is never seen whole never moves at all.
stretches = st.builds(
    Stretch,
    rate=st.sampled_from([0.0, 0.0, 0.3, 0.3, 1.5, 4.0, 20.0]),
    fine=st.integers(2, 14),
    bad=st.lists(st.tuples(*[st.sampled_from(["fine", *BAD])] * HIGH), max_size=3).map(tuple),
    seconds=st.sampled_from([5.0, 5.0, 5.0, 1.0, 45.0]),
)


def bent(sample: EngineSample, weather: str) -> EngineSample | None:
    """The scrape as the weather leaves it."""
    match weather:
        case "nan":
            return replace(sample, arrived_total=math.nan, ttft=Histogram(BOUNDS, (math.nan,) * len(BOUNDS)))
        case "negative":
            return replace(sample, waiting=-5.0, generated_tokens_total=-1.0)
        case "absurd":
            return replace(sample, running=1e30, kv_occupancy=7.0)
        case "overflow":
            counts = (*sample.ttft.counts[:-1], sample.ttft.count + 50.0)
            return replace(sample, ttft=Histogram(BOUNDS, counts), slo_missed_total=sample.slo_missed_total + 50.0)
        case "missing":
            return None
    return sample


@dataclass(frozen=True)
class Move:
    """One look: what the count was and became, and whether every ready pod could be believed."""

    at: float
    before: int
    after: int
    seen: bool


class Rough:
    """A story in bad weather: what decide() is shown is bent, what it asks for is done."""

    def __init__(self, replicas: int = 3) -> None:
        scaling = {"minReplicas": LOW, "maxReplicas": HIGH, "scaleDownStabilizationSeconds": WINDOW}
        self.story = Story(spec=spec(scaling=scaling), replicas=replicas, cold_start=15.0)
        self.moves: list[Move] = []

    def take(self, step: Step) -> Decision:
        story = self.story
        story.serve(step.rate, step.seconds)
        story.now += step.seconds
        story._load()
        views, seen = [], True
        for weather, (name, engine) in zip(step.weather, list(story.engines.items()), strict=False):
            seen &= weather not in UNSEEN
            if weather == "reset":
                story.engines[name] = engine = Engine()
            sample = bent(engine.sample(), weather)
            at = story.now + {"stale": -500.0, "future": 600.0}.get(weather, 0.0)
            start = ColdStart(1.0, 2.0, math.nan if weather == "nan" else 3.0, 4.0, 10.0)
            views.append(PodView(name, "ready", 0.0, sample, None if sample is None else at, cold_start=start))
        views += [PodView(name, "loading", since) for name, since in story.loading.items()]
        observed = Observed(pods=tuple(views), replicas=story.replicas)
        decision, story.state = decide(story.spec, observed, story.state, story.now)
        self.moves.append(Move(story.now, story.replicas or 0, decision.replicas or 0, seen))
        story._act(decision)
        return decision

    def check(self) -> int:
        """The rules of moving, by what was shown and done; how many replicas left."""
        ups = [move.at for move in self.moves if move.after > move.before]
        downs = [move for move in self.moves if move.after < move.before]
        for move in downs:
            assert move.seen, "a replica left while somebody could not be measured"
            assert move.before - move.after == 1
            # Down only after a whole window in which nothing more was wanted: none follows an up sooner.
            assert all(move.at - up >= WINDOW for up in ups if up < move.at)
        assert all(later.at - sooner.at >= WINDOW for sooner, later in itertools.pairwise(downs))
        return len(downs)


@settings(max_examples=40, deadline=None)
@given(st.integers(LOW, HIGH), st.lists(stretches, min_size=1, max_size=8))
def test_whatever_fails_counts_and_limits_stay_in_range_without_flapping(
    replicas: int, sequence: list[Stretch]
) -> None:
    rough = Rough(replicas)
    for step in itertools.chain.from_iterable(stretch.steps() for stretch in sequence):
        decision = rough.take(step)
        assert decision.replicas is not None and LOW <= decision.replicas <= HIGH
        for _, bounds in decision.bounds:
            assert 2 <= bounds.concurrency_min <= bounds.concurrency_max <= 64
            assert 1 <= bounds.max_queue < 10_000 and 0 < bounds.kv_watermark <= 1
    rough.check()
    assert size_of(rough.story.state) < 64 * KB


def calm(looks: int) -> Rough:
    """Five replicas under a load for two, after so many looks at a clear sky."""
    rough = Rough(replicas=5)
    for step in Stretch(0.3, looks, ()).steps():
        rough.take(step)
    return rough


def test_without_faults_a_fleet_that_is_too_large_shrinks_one_by_one_to_its_minimum() -> None:
    rough = calm(40)
    assert rough.check() == 3
    assert rough.moves[-1].after == LOW


@pytest.mark.parametrize("weather", BAD)
def test_a_fault_of_one_pod_delays_a_scale_in_that_was_due(weather: str) -> None:
    clear = calm(40)
    for place, move in enumerate(clear.moves):
        if move.after < move.before:
            rough = calm(place)
            assert rough.story.replicas == move.before
            decision = rough.take(Step(0.3, 5.0, (*FINE[1:], weather)[-move.before :]))
            assert decision.replicas == move.before


@pytest.mark.parametrize("interval", [5.0, 2.2, 1.0])
def test_the_state_of_64_replicas_with_a_full_history_stays_small(interval: float) -> None:
    story = Story(spec=spec(scaling={"minReplicas": 64, "maxReplicas": 64}), replicas=64, interval=interval)
    story.started = {name: ColdStart(1.5, 2.5, 3.5, 4.5, 12.5) for name in story.engines}
    story.run(100, 20.0)
    story.state = replace(story.state, history=full(story.state.history, story.now))
    story.run(interval, 20.0)
    assert len(story.state.history.slots) >= MEMORY / LAW.rise_seconds
    assert size_of(story.state) < 64 * KB


def full(history: History, now: float) -> History:
    """The history with as many slots, comparisons and arrivals as it keeps."""
    slot, comparison = history.slots[-1], history.comparisons[-1]
    slots = math.floor(MEMORY / LAW.rise_seconds) + 4
    each = MEMORY / slots
    return replace(
        history,
        slots=tuple(
            replace(slot, begun=now - each * (place + 2.0), ended=now - each * place, lateness=slot.lateness[:])
            for place in reversed(range(slots))
        ),
        comparisons=tuple(
            replace(comparison, ended=now - LAW.error_seconds / 12 * place, lateness=comparison.lateness[:])
            for place in reversed(range(12))
        ),
        arrivals=tuple((now - LAW.bin_seconds * place, float(place)) for place in reversed(range(20))),
    )


def test_an_unused_state_is_small() -> None:
    assert size_of(AutoscalerState()) < KB * 4

"""Whatever engines, watches and clocks do over minutes: counts and limits in range, no fall unwatched, no flapping."""

import itertools
import math
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_operator.api import LLMDeploymentSpec
from sluice_operator.decide import decide
from sluice_operator.decide.histograms import BOUNDS
from sluice_operator.decide.values import ColdStart, Decision, EngineSample, Histogram, Memory, Observed, PodView
from tests.operator.decide_fleet import Engine, Story, spec
from tests.operator.memory_size import size_of

WINDOW = 20
KB = 1024
Weather = st.sampled_from(
    ["fine"] * 4 + ["nan", "negative", "absurd", "missing", "stale", "reset", "overflow", "future"]
)


@dataclass(frozen=True)
class Step:
    """What one interval brings: requests per second, seconds until it is looked at, and each pod's weather."""

    rate: float
    seconds: float
    weather: tuple[str, ...]


steps = st.builds(
    Step,
    rate=st.sampled_from([0.0, 0.3, 1.5, 4.0, 20.0]),
    seconds=st.sampled_from([1.0, 5.0, 5.0, 5.0, 45.0]),
    weather=st.tuples(*[Weather] * 6),
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


class Rough:
    """A story in bad weather: what decide() is shown is bent, what it asks for is done."""

    def __init__(self, asked: LLMDeploymentSpec) -> None:
        self.story = Story(spec=asked, replicas=3, cold_start=15.0)
        self.replicas: list[tuple[float, int]] = []

    def take(self, step: Step) -> Decision:
        story = self.story
        for engine in story.engines.values():
            engine.pass_time(step.rate / max(1, len(story.engines)), step.seconds)
        story.now += step.seconds
        story._load()
        views = []
        for place, (name, engine) in enumerate(list(story.engines.items())):
            weather = step.weather[place % len(step.weather)]
            if weather == "reset":
                story.engines[name] = engine = Engine()
            sample = bent(engine.sample(), weather)
            at = story.now + {"stale": -500.0, "future": 600.0}.get(weather, 0.0)
            start = ColdStart(1.0, 2.0, math.nan if weather == "nan" else 3.0, 4.0, 10.0)
            views.append(PodView(name, "ready", 0.0, sample, None if sample is None else at, cold_start=start))
        views += [PodView(name, "loading", since) for name, since in story.loading.items()]
        observed = Observed(pods=tuple(views), replicas=story.replicas)
        decision, story.memory = decide(story.spec, observed, story.memory, story.now)
        self.replicas.append((story.now, decision.replicas or 0))
        story._act(decision)
        return decision


@settings(max_examples=25, deadline=None)
@given(st.lists(steps, min_size=5, max_size=40))
def test_in_any_weather_the_dials_keep_their_rules(sequence: list[Step]) -> None:
    low, high = 2, 6
    scaling = {"minReplicas": low, "maxReplicas": high, "scaleDownStabilizationSeconds": WINDOW}
    rough = Rough(spec(scaling=scaling))
    for step in sequence:
        before = rough.story.replicas or 0
        decision = rough.take(step)
        after = decision.replicas
        assert after is not None and low <= after <= high
        for _, bounds in decision.bounds:
            assert 2 <= bounds.concurrency_min <= bounds.concurrency_max <= 64
            assert 1 <= bounds.max_queue < 10_000 and 0 < bounds.kv_watermark <= 1
        if after < before:
            assert decision.metrics in ("Fresh", "NoTraffic") and before - after == 1
    assert size_of(rough.story.memory) < 256 * KB
    downs = [at for (_, a), (at, b) in zip(rough.replicas, rough.replicas[1:], strict=False) if b < a]
    ups = [at for (_, a), (at, b) in zip(rough.replicas, rough.replicas[1:], strict=False) if b > a]
    assert all(later - sooner >= WINDOW for sooner, later in itertools.pairwise(downs))
    # Down only after a whole window in which nothing more was wanted: none follows an up sooner.
    assert all(down - up >= WINDOW for up in ups for down in downs if down > up)


def test_memory_of_64_replicas_over_half_an_hour_of_seconds_stays_under_256_kb() -> None:
    story = Story(spec=spec(scaling={"minReplicas": 1, "maxReplicas": 64}), replicas=64, interval=1.0)
    story.run(60, 100.0)
    full = tuple((slot, 1000.0 + slot) for slot in range(-180, 0))
    starts = tuple((f"chat-{n}", ColdStart(1.5, 2.5, 3.5, 4.5, 12.5)) for n in range(16))
    wanted = tuple((float(n), n) for n in range(61))
    whole = replace(story.memory, slots=full, starts=starts, wanted=wanted)
    assert size_of(whole) < 256 * KB


def test_the_memory_that_was_never_used_is_small() -> None:
    assert size_of(Memory()) < KB * 4

"""decide() in every mode, with external writes, and with arbitrary observations."""

import math
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_operator.autoscaler import decide
from sluice_operator.autoscaler.signals.histograms import BOUNDS
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import EngineSample, Histogram, Observed, PodPhase, PodView, ShadowTotals
from sluice_perfmodel.shadow_queues import LOADS
from tests.operator.autoscaler.fleet import MODEL, Engine, Story, spec
from tests.operator.runtime.memory_size import size_of

BUSY, QUIET = 1.25, 0.2


def settled(replicas: int = 2, rate: float = BUSY, seconds: float = 30) -> Story:
    """A story in the middle of its stabilization window."""
    story = Story(replicas=replicas)
    story.run(seconds, rate)
    return story


def test_no_traffic_allows_scale_in_and_keeps_admission_open() -> None:
    story = settled(rate=0.0, seconds=55)
    assert story.decisions[-1][1].metrics == "NoTraffic"
    story.run(30, 0.0)
    assert story.replicas == 1
    assert [bounds.concurrency_max for _, bounds in story.decisions[-1][1].bounds] == [64]


def test_an_external_write_is_reported_and_not_reverted() -> None:
    story = settled(rate=BUSY)
    story.replicas = 3
    story.now += 5
    decision = story.decide()
    assert decision.replicas == 3
    assert [(r.before, r.after, r.binding) for r in decision.reasons] == [(2, 3, "OtherWriter")]


def test_without_a_deployment_auto_and_advise_create_the_minimum() -> None:
    for mode in ("Auto", "Advise"):
        decision, _ = decide(spec(scaling={"mode": mode, "minReplicas": 2}), Observed(), AutoscalerState(), 5.0)
        assert (decision.replicas, decision.desired, decision.metrics) == (2, 2, "NoPods")


def test_external_follows_spec_replicas() -> None:
    story = Story(spec=spec(scaling={"mode": "External"}, replicas=5))
    decision = story.decide()
    assert (decision.replicas, decision.desired) == (5, 5)
    assert decision.reasons[0].sentence == "1 → 5 replicas: follows spec.replicas (mode External)."
    assert decision.bounds


def test_off_sets_no_count_and_keeps_admission() -> None:
    story = Story(spec=spec(scaling={"mode": "Off", "minReplicas": 2}, replicas=3), replicas=1)
    decision = story.decide()
    assert (decision.replicas, decision.desired, decision.reasons) == (None, 1, ())
    assert decision.bounds
    first, _ = decide(story.spec, Observed(), AutoscalerState(), 5.0)
    assert (first.replicas, first.desired) == (None, 1)


def test_advise_records_what_auto_would_do_once_and_does_not_act() -> None:
    story = Story(spec=spec(scaling={"mode": "Advise"}))
    advised = [*story.run(60, BUSY), *story.run(120, 4.0)]
    assert {d.replicas for d in advised} == {None}
    assert advised[-1].desired >= 2
    assert {bounds.concurrency_max for d in advised for _, bounds in d.bounds} == {64}  # no replica is starting
    assert all(sentence.startswith("Advice (not carried out): ") for sentence in story.sentences())
    assert len(story.sentences()) == len({r for _, d in story.decisions for r in d.reasons if r.dial == "replicas"})


@pytest.mark.parametrize(
    ("mode", "step"),
    [("Advise", "scale the Deployment"), ("External", "raise spec.replicas"), ("Off", "scale the Deployment")],
)
def test_rejections_in_other_modes_name_the_count_and_how_to_raise_it(mode: str, step: str) -> None:
    story = Story(spec=spec(scaling={"mode": mode}, replicas=1))
    story.run(60, BUSY)
    story.run(60, 12.0)
    rejected = next(s for s in story.sentences("admission") if "requests rejected" in s)
    assert f"1 set, and mode {mode} adds none: {step} or set scaling.mode Auto." in rejected
    assert "maxReplicas" not in rejected


def test_bounds_are_tight_while_replicas_ordered_by_the_user_under_advise_start() -> None:
    story = Story(spec=spec(scaling={"mode": "Advise"}))
    story.run(60, BUSY)
    story.run(300, 4.0)
    story.replicas = 2  # whose pod is not there yet
    story.now += 5
    assert dict(story.decide().bounds)["chat-1"].concurrency_max < 20


def test_auto_starts_from_the_count_in_force_and_not_from_earlier_advice() -> None:
    story = Story(spec=spec(scaling={"mode": "Advise"}))
    story.run(60, BUSY)
    story.run(60, 4.0)
    story.spec = spec()
    story.now += 5
    decision = story.decide()
    assert decision.reasons[0].before == 1 and decision.reasons[0].binding != "OtherWriter"


def test_a_narrowed_range_applies_at_once_with_a_reason() -> None:
    story = settled(replicas=3)
    story.spec = spec(scaling={"maxReplicas": 1})
    story.now += 5
    decision = story.decide()
    assert decision.replicas == 1
    assert decision.reasons[-1].sentence == "3 → 1 replica: maxReplicas is 1."
    assert len(decision.scale_in_candidates) == 2


def test_admission_fixed_sends_equal_bounds_and_off_sends_none() -> None:
    story = settled()
    story.spec = spec(admission={"mode": "Fixed", "concurrency": {"min": 2, "max": 8}})
    fixed = story.decide().bounds[0][1]
    assert (fixed.concurrency_min, fixed.concurrency_max) == (8, 8)
    story.spec = spec(admission={"mode": "Off"})
    assert story.decide().bounds == ()


def test_paused_observes_and_writes_nothing() -> None:
    story = settled()
    story.spec = spec(paused=True)
    decision = story.decide()
    assert (decision.replicas, decision.bounds, decision.reasons) == (None, (), ())
    assert decision.kv_occupancy is not None


# --- anything at all -------------------------------------------------------------------------------------------

NUMBER = st.one_of(
    st.floats(0, 100),
    st.floats(0, 1e6),
    st.sampled_from([math.nan, -1.0, math.inf, 1e30, 0.0, 1.0]),
)
PHASES: tuple[PodPhase, ...] = ("unschedulable", "scheduling", "pulling", "loading", "ready", "draining", "failed")
OTHERS = ("ttft", "itl", "step_model", "load_seconds", "shadow", "start", "revision")  # no single numbers
FIELDS = [f.name for f in fields(EngineSample) if f.name not in OTHERS]


@st.composite
def samples(draw: st.DrawFn) -> EngineSample:
    values: dict[str, Any] = {name: draw(NUMBER) for name in draw(st.sets(st.sampled_from(FIELDS), max_size=4))}
    base = Engine().sample()
    growing = draw(st.integers(0, 1000))
    counts = tuple(float(growing) for _ in BOUNDS)
    histogram = draw(st.sampled_from([Histogram(), Histogram(BOUNDS, counts), Histogram((1.0,), (5.0,))]))
    model = draw(st.sampled_from([None, MODEL, replace(MODEL, base=math.nan), replace(MODEL, base=0.0, sequence=0.0)]))
    late = st.sampled_from([tuple(draw(NUMBER) for _ in LOADS), (0.0,) * len(LOADS), (1.0, 2.0)])
    shadow = draw(st.one_of(st.none(), st.builds(ShadowTotals, NUMBER, NUMBER, late)))
    totals = {
        "arrived_total": draw(st.floats(0, 1e4)),
        "generated_tokens_total": draw(st.floats(0, 1e6)),
        "finished_total": draw(st.floats(0, 1e4)),
    }
    return replace(base, ttft=histogram, itl=histogram, step_model=model, shadow=shadow, **(totals | values))


@st.composite
def pods(draw: st.DrawFn, now: float) -> PodView:
    sample = draw(st.one_of(st.none(), samples()))
    age = draw(st.sampled_from([0.0, 1.0, 20.0, -700.0, 700.0, math.nan]))
    name = draw(st.sampled_from(["a", "b", "c", "d"]))
    return PodView(name, draw(st.sampled_from(PHASES)), now, sample, draw(st.sampled_from([None, now - age])))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_is_observed_the_dials_stay_in_range_and_the_state_bounded(data: st.DataObject) -> None:
    asked = spec(scaling={"minReplicas": 2, "maxReplicas": 6, "scaleDownStabilizationSeconds": 20})
    memory, now, replicas = AutoscalerState(), 100.0, 4
    for _ in range(data.draw(st.integers(1, 12))):
        now += data.draw(st.sampled_from([0.0, 0.3, 1.0, 5.0, 40.0]))
        seen = data.draw(st.lists(pods(now), max_size=4, unique_by=lambda pod: pod.name))
        observed = Observed(tuple(seen), replicas)
        decision, memory = decide(asked, observed, memory, now)
        assert decision.replicas is not None and 2 <= decision.replicas <= 6
        for _, bounds in decision.bounds:
            assert 2 <= bounds.concurrency_min <= bounds.concurrency_max <= 64
            assert bounds.max_queue >= 1
        if decision.metrics in ("Partial", "Stale", "NoPods"):
            assert decision.replicas >= replicas
        replicas = decision.replicas
    assert size_of(memory) < 64 * 1024

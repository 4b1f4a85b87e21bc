"""What decide() does with invalid, stale and missing metrics.

Every test starts from a prepared fleet: the next decision removes a replica, unless the metrics forbid it.
"""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Any

import pytest

from sluice_operator.autoscaler import decide
from sluice_operator.autoscaler.signals.histograms import BOUNDS
from sluice_operator.autoscaler.values import Decision, EngineSample, Histogram, Observed, ShadowTotals
from sluice_perfmodel.shadow_queues import LOADS
from sluice_perfmodel.step_time import StepTimeModel
from tests.operator.autoscaler.fleet import MODEL, Engine, Story, spec, with_signals

BUSY, QUIET = 1.25, 0.2
BAD = (math.nan, -1.0, math.inf, 1e30)
COLD = replace(MODEL, steps=3)
# decide() reads none of these metrics.
BOUNDS_IN_FORCE = {"concurrency_min", "concurrency_max"}
UNREAD = BOUNDS_IN_FORCE | {"load_seconds", "start", "revision"}
NUMBERS = [f.name for f in fields(EngineSample) if f.name not in UNREAD | {"ttft", "itl", "step_model", "shadow"}]
SHADOW = [f.name for f in fields(ShadowTotals)]
TERMS = [f.name for f in fields(StepTimeModel) if f.name != "error_ratio"]

Bend = Callable[[EngineSample], EngineSample]


@cache
def _brink(model: StepTimeModel, ttft: int) -> Story:
    story = Story(replicas=2, spec=spec(slo={"ttftMilliseconds": ttft}))
    for engine in story.engines.values():
        engine.model = model
    for _ in range(100):
        before = copy.deepcopy(story)
        story.run(story.interval, QUIET)
        if story.replicas == 1:
            return before
    raise RuntimeError("the fleet never shrank")


def brink(model: StepTimeModel = MODEL, ttft: int = 2000) -> Story:
    """Two replicas; the next decision removes one of them."""
    return copy.deepcopy(_brink(model, ttft))


def look(story: Story, bend: Mapping[str, Bend] | None = None, ages: Mapping[str, float] | None = None) -> Decision:
    """Pass one quiet interval, then decide with samples changed and aged per pod. The decision is not carried out."""
    story.serve(QUIET, story.interval)
    story.now += story.interval
    views = []
    for name, engine in story.engines.items():
        bent = (bend or {}).get(name)
        sample = engine.sample() if bent is None else bent(engine.sample())
        story.heard[name] = (sample, story.now - (ages or {}).get(name, 0.0))
        views.append(story._view(name, "ready"))
    decision, story.state = decide(story.spec, Observed(tuple(views), story.replicas), story.state, story.now)
    return decision


def bounded(decision: Decision) -> list[str]:
    """The pods whose limits were written; the others keep their last."""
    return [name for name, _ in decision.bounds]


def with_number(name: str, value: float) -> Bend:
    changes: dict[str, Any] = {name: value}
    return lambda sample: replace(sample, **changes)


def with_term(name: str, value: float) -> Bend:
    changes: dict[str, Any] = {name: value}
    return lambda sample: replace(sample, step_model=replace(MODEL, **changes))


def with_shadow(name: str, value: float) -> Bend:
    counts = (*[0.0] * (len(LOADS) - 1), value)
    changes: dict[str, Any] = {name: counts if name == "late" else value}

    def bend(sample: EngineSample) -> EngineSample:
        return replace(sample, shadow=None if sample.shadow is None else replace(sample.shadow, **changes))

    return bend


def with_counts(name: str, place: int, value: float) -> Bend:
    def bend(sample: EngineSample) -> EngineSample:
        counts = list(getattr(sample, name).counts)
        counts[place] = value
        changes: dict[str, Any] = {name: Histogram(BOUNDS, tuple(counts))}
        return replace(sample, **changes)

    return bend


INVALID = {
    **{f"{name}={bad}": with_number(name, bad) for name in NUMBERS for bad in BAD},
    "kv_occupancy=7": with_number("kv_occupancy", 7.0),  # a share
    **{f"model.{term}={bad}": with_term(term, bad) for term in TERMS for bad in BAD if term != "steps"},
    **{f"model.steps={bad}": with_term("steps", bad) for bad in (math.nan, -1.0)},
    **{
        f"{name}[{place}]={bad}": with_counts(name, place, bad)
        for name in ("ttft", "itl")
        for place in (0, 5, -1)
        for bad in BAD
    },
    **{f"shadow.{name}={bad}": with_shadow(name, bad) for name in SHADOW for bad in BAD},
    "falling buckets": lambda sample: replace(sample, ttft=Histogram(BOUNDS, (9.0, *sample.ttft.counts[1:]))),
    "foreign buckets": lambda sample: replace(sample, itl=Histogram((1.0, math.inf), (5.0, 6.0))),
}


def test_the_next_decision_of_the_prepared_fleet_removes_one_replica() -> None:
    decision = look(brink())
    assert (decision.replicas, decision.metrics, bounded(decision)) == (1, "Fresh", ["chat-1", "chat-2"])


@pytest.mark.parametrize("bend", INVALID.values(), ids=INVALID.keys())
def test_a_sample_with_an_invalid_number_counts_as_missing(bend: Bend) -> None:
    one = look(brink(), {"chat-2": bend})
    assert (one.replicas, one.metrics, bounded(one)) == (2, "Partial", ["chat-1"])
    both = look(brink(), {"chat-1": bend, "chat-2": bend})
    assert (both.replicas, both.metrics, bounded(both)) == (2, "Stale", [])


@pytest.mark.parametrize("ever_heard", [True, False])
def test_with_one_pod_unmeasured_the_rest_is_used_and_scale_in_stops(ever_heard: bool) -> None:
    story = brink()
    story.silent.add("chat-2")
    sample, at = story.heard.pop("chat-2")
    if ever_heard:
        story.heard["chat-2"] = (sample, at - 60)
    else:
        window = story.state.signals.window
        others = tuple(one for one in window.pods if one.name != "chat-2")
        story.state = with_signals(story.state, window=replace(window, pods=others))
    calm = story.run(200, QUIET)
    assert {d.replicas for d in calm} == {2}
    assert {d.metrics for d in calm} == {"Partial"}
    assert [bounded(d) for d in calm] == [["chat-1"]] * len(calm)
    story.run(60, 9.0)
    assert story.replicas == 3


@pytest.mark.parametrize("rate", [0.0, QUIET, 9.0])
def test_with_no_pod_measured_the_count_holds_and_engines_keep_their_limits(rate: float) -> None:
    story = brink()
    story.silent.update(story.engines)
    story.heard.clear()
    held = story.run(300, rate)
    assert {d.replicas for d in held} == {2}
    assert {(d.metrics, d.bounds) for d in held} == {("Stale", ())}


@pytest.mark.parametrize(
    ("age", "replicas", "written"),
    [(14.9, 1, ["chat-1", "chat-2"]), (15.1, 2, ["chat-1"]), (-0.1, 2, ["chat-1"])],  # scraped every 5 s
)
def test_stale_is_older_than_three_scrapes_and_holds_both_dials(age: float, replicas: int, written: list[str]) -> None:
    decision = look(brink(), ages={"chat-2": age})
    assert (decision.replicas, bounded(decision)) == (replicas, written)


def test_a_counter_reset_is_a_new_base_and_stops_scale_in_for_a_window() -> None:
    story = brink()
    story.engines["chat-1"] = Engine(model=None)
    reset = look(story)
    bounds = dict(reset.bounds)
    assert reset.replicas == 2
    assert reset.attainment is not None and 0 <= reset.attainment <= 1
    # The new engine has no model: its bound is n* of the fleet's model, and the other's is the maximum.
    assert 2 <= bounds["chat-1"].concurrency_max < bounds["chat-2"].concurrency_max == 64
    began = story.now
    story.run(120, QUIET)
    fell = next(at for at, decision in story.decisions if at > began and decision.replicas == 1)
    assert fell - began >= 30


def test_a_fleet_without_models_gets_the_range_of_the_spec_and_a_queue_of_one_batch() -> None:
    story = Story(replicas=2)
    for engine in story.engines.values():
        engine.model = COLD
    story.run(30, BUSY)
    bounds = [(one.concurrency_min, one.concurrency_max, one.max_queue) for _, one in story.decisions[-1][1].bounds]
    assert bounds == [(2, 64, 64)] * 2


def test_an_engine_without_a_model_gets_the_bound_of_the_fleets_model() -> None:
    story = brink()
    story.engines["chat-2"].model = None
    bounds = dict(look(story).bounds)
    assert bounds["chat-2"].concurrency_max < bounds["chat-1"].concurrency_max == 64


# --- beyond the last bucket: 80 seconds -----------------------------------------------------------------------

FULL = 13.0  # requests that one engine of the story runs at once


def overflowing(count: float, running: float, missed: float = 0.0) -> Bend:
    """First tokens beyond the last bucket; the engine has counted `missed` of the requests, those that ended."""

    def bend(sample: EngineSample) -> EngineSample:
        counts = (*sample.ttft.counts[:-1], sample.ttft.count + count)
        late = replace(sample, ttft=Histogram(BOUNDS, counts), slo_missed_total=sample.slo_missed_total + missed)
        return replace(late, running=running)

    return bend


@cache
def _working(maximum: int, ttft: int, model: StepTimeModel) -> Story:
    story = Story(replicas=1, spec=spec(scaling={"maxReplicas": maximum}, slo={"ttftMilliseconds": ttft}))
    story.engines["chat-1"].model = model
    story.run(200, 1.8)
    return story


def working(maximum: int = 3, ttft: int = 2000, model: StepTimeModel = MODEL) -> Story:
    """One replica that meets its targets."""
    return copy.deepcopy(_working(maximum, ttft, model))


@pytest.mark.parametrize(("ttft", "missed", "replicas"), [(2000, 200, 2), (80_000, 200, 2), (80_001, 0, 1)])
def test_a_first_token_beyond_the_last_bucket_is_a_miss_unless_the_target_lies_there_too(
    ttft: int, missed: float, replicas: int
) -> None:
    decision = look(working(ttft=ttft, model=COLD), {"chat-1": overflowing(200, FULL)})
    met = 30 * 1.8  # in the half minute that counts
    assert (decision.replicas, decision.ttft) == (replicas, 80.0)
    assert decision.attainment == pytest.approx(met / (met + missed), abs=0.05)


@pytest.mark.parametrize("model", [MODEL, COLD])
def test_a_late_request_that_the_engine_has_counted_is_counted_once(model: StepTimeModel) -> None:
    unjudged, judged = (
        look(working(model=model), {"chat-1": overflowing(200, FULL, missed)}) for missed in (0.0, 200.0)
    )
    assert unjudged.attainment == pytest.approx(judged.attainment)
    assert unjudged.replicas == judged.replicas


def test_no_scale_in_while_first_tokens_overflow() -> None:
    assert look(brink(), {"chat-2": overflowing(1, running=0.0)}).replicas == 2


@pytest.mark.parametrize("target", [2000, 100_000])
def test_bounds_are_tight_while_first_tokens_overflow_and_relaxed_after(target: int) -> None:
    story = working(maximum=1, ttft=target)
    story.engines["chat-1"].ttft[-1] += 200
    most = [decision.bounds[0][1].concurrency_max for decision in story.run(40, QUIET)]
    # For half a minute, six decisions, the bound is n* of the model; then the engine's own loop decides again.
    assert [value == 64 for value in most] == [target > 80_000] * 6 + [True] * 2
    assert all(2 < value < 20 or value == 64 for value in most)


def test_the_reason_of_a_limit_that_falls_with_its_bound_names_the_late_first_tokens() -> None:
    story = working(maximum=1)
    reported = replace(story.state.admission, reported_limit=(story.now - 60, 64))
    story.state = replace(story.state, admission=reported)
    late = overflowing(200, FULL)
    bound = look(story, {"chat-1": lambda sample: replace(late(sample), concurrency=64.0)}).bounds[0][1].concurrency_max
    obeyed = look(story, {"chat-1": lambda sample: replace(late(sample), concurrency=float(bound))})
    said = f"64 → {bound} requests at once per replica: first tokens come later than the last bucket, so bounds hold."
    assert [reason.sentence.startswith(said) for reason in obeyed.reasons] == [True]


def test_a_fleet_without_models_scales_out_by_the_misses_that_came() -> None:
    story = Story(replicas=1)
    story.engines["chat-1"].model = COLD
    story.run(120, 5.0)
    assert story.replicas == 3, "the second replica knows its throughput"
    first, *later = story.sentences()
    assert first.startswith("1 → 2 replicas: the SLO is missed. ")
    assert not [one for one in later if "SLO is missed" in one], "misses of one replica are not counted against two"
    assert "requests missed it in 30 s, and the engines' step times are not known yet" in story.sentences()[0]


def holding(share: float) -> Bend:
    """The engine held this share of its KV blocks for the half minute that counts."""
    return lambda sample: replace(
        sample, kv_block_seconds_total=sample.kv_block_seconds_total + 30.0 * share * sample.kv_blocks
    )


@pytest.mark.parametrize(
    ("bend", "replicas"),
    [(holding(0.3), 1), (holding(0.6), 2), (with_number("waiting", 0.0), 1), (with_number("waiting", 1.0), 2)],
    ids=["free memory", "little free memory", "none waits", "one waits"],
)
def test_a_fleet_without_models_shrinks_only_with_free_memory_and_no_waiting_request(bend: Bend, replicas: int) -> None:
    decision = look(brink(COLD), {"chat-1": bend, "chat-2": bend})
    assert (decision.replicas, decision.metrics) == (replicas, "Fresh")


def test_one_engine_without_a_model_orders_nothing_by_misses_while_the_others_have_a_replay() -> None:
    story = Story(replicas=2, spec=spec(scaling={"minReplicas": 2}))
    story.engines["chat-2"].model = None
    story.run(120, BUSY)
    story.engines["chat-2"].totals["slo_missed_total"] = 50.0
    story.run(60, BUSY)
    assert story.sentences() == []
    story.engines["chat-1"].model = None
    story.engines["chat-2"].totals["slo_missed_total"] = 100.0
    story.run(5, BUSY)
    assert story.replicas == 3


def test_the_kv_caches_of_engines_that_are_not_measured_count_like_the_others() -> None:
    story = Story(replicas=3, spec=spec(scaling={"targetKVOccupancyPercent": 50, "maxReplicas": 8}))
    story.run(30, QUIET)
    full = dict.fromkeys(("chat-1", "chat-2"), holding(0.65))
    decision = look(story, full, ages={"chat-3": 100.0})
    assert decision.metrics == "Partial"
    assert decision.replicas == 4  # three hold 1.95 caches, and each is planned to be half full

"""All laws together: the contents of the registry, and properties that every law keeps for any observation."""

import math
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_operator.autoscaler import decide
from sluice_operator.autoscaler.values import EngineSample, Observed, PodPhase, PodView, ShadowTotals
from sluice_sim.policies.policy import GRID, engines_under, leaving
from sluice_sim.policies.registry import FAMILIES, LAWS, UnknownLaw, named
from sluice_sim.policies.sluice import OURS, AdmissionOnly
from tests.operator.autoscaler.fleet import MODEL, spec
from tests.sim.policies.pods import fleet, sample

OWN = ("sluice", "replicas-only", "admission-only")
PEERS = tuple(name for name in LAWS if name not in OWN)
SPEC = spec(scaling={"minReplicas": 2, "maxReplicas": 7})


def test_every_law_has_one_knob_of_nine_values_with_its_default_among_them() -> None:
    for name, entry in LAWS.items():
        assert entry.default().name == name
        assert entry.default().knob == entry.knob
        assert len(set(entry.knob.grid)) == GRID
        assert list(entry.knob.grid) == sorted(entry.knob.grid)
        assert entry.knob.default in entry.knob.grid
        assert [entry.make(value).setting for value in entry.knob.grid] == list(entry.knob.grid)


def test_a_family_name_expands_to_its_members_without_duplicates() -> None:
    assert named(["llm-d", "kpa", "llm-d-slo"]) == ("llm-d-slo", "llm-d-tokens", "kpa")
    assert named(["hpa"]) == ("hpa-queue", "hpa-running", "hpa-kv")
    assert all(len(named([family])) >= 2 for family in FAMILIES)


def test_an_unknown_law_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(UnknownLaw, match=r"'hpa-cpu' is no law; known are sluice, .*dynamo-load, and hpa, llm-d"):
        named(["kpa", "hpa-cpu"])


def test_a_law_without_admission_pins_the_limits_at_their_maximum() -> None:
    pinned = engines_under(LAWS["kpa"].default(), SPEC).admission
    assert (pinned.concurrency.min, pinned.concurrency.max, pinned.mode) == (64, 64, "Off")
    assert engines_under(OURS, SPEC) is SPEC


def test_sluices_default_is_decide_itself_and_its_knob_changes_the_planned_misses() -> None:
    observed = fleet([sample(step_model=MODEL)] * 2)
    assert OURS.decide(SPEC, observed, OURS.initial(), 0.0) == decide(SPEC, observed, OURS.initial(), 0.0)
    half = LAWS["sluice"].make(0.5)
    stricter = spec(
        scaling={"minReplicas": 2, "maxReplicas": 7},
        slo={"attainmentPercent": "99.500"},
    )
    assert half.decide(SPEC, observed, OURS.initial(), 0.0) == decide(stricter, observed, OURS.initial(), 0.0)


def test_each_ablation_moves_either_replicas_or_limits() -> None:
    observed = fleet([sample(step_model=MODEL)] * 2)
    alone = LAWS["replicas-only"].default()
    assert alone.decide(SPEC, observed, alone.initial(), 0.0)[0].bounds == ()
    assert OURS.decide(SPEC, observed, OURS.initial(), 0.0)[0].bounds
    fixed = AdmissionOnly(0.6)
    decision, _ = fixed.decide(SPEC, observed, fixed.initial(), 0.0)
    assert decision.replicas == 4 and decision.bounds


def test_a_replica_set_deletes_unready_pods_first_then_the_newest() -> None:
    """Kubernetes, "ReplicaSet", scaling: pending or unready pods first, then by how recently they became ready."""
    observed = fleet([sample()] * 3, loading=2)
    assert leaving(observed, 4) == ("new-0", "new-1", "pod-2", "pod-1")


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_without_samples_keeps_the_count_and_sets_no_bounds(name: str) -> None:
    law = LAWS[name].default()
    memory = law.initial()
    for call in range(60):
        decision, memory = law.decide(SPEC, fleet([None] * 4), memory, 10.0 * call)
        assert (decision.replicas, decision.bounds) == (4, ())


@pytest.mark.parametrize("name", PEERS)
def test_a_fleet_that_fell_idle_shrinks_to_its_minimum(name: str) -> None:
    law = LAWS[name].default()
    memory, count = law.initial(), 4
    for call in range(421):
        done = float(min(call, 40))  # a request per replica in 5 s, for 200 s
        pods = [
            sample(
                step_model=MODEL,
                arrived_total=done,
                finished_total=done,
                prompt_tokens_total=60 * done,
                generated_tokens_total=40 * done,
            )
        ] * count
        decision, memory = law.decide(SPEC, fleet(pods, 5.0 * call), memory, 5.0 * call)
        count = decision.replicas or 0
    assert count == 2


NUMBERS = st.one_of(st.floats(0, 1e4), st.sampled_from([math.nan, math.inf, -1.0, 1e18, 0.0]))
PHASES: tuple[PodPhase, ...] = ("unschedulable", "scheduling", "pulling", "loading", "ready", "draining", "failed")


@st.composite
def pods(draw: st.DrawFn) -> tuple[PodView, ...]:
    """Pods with some of their numbers absurd, their scrapes old, lost or from the future."""
    found = []
    for index in range(draw(st.integers(0, 5))):
        others = ("ttft", "itl", "step_model", "load_seconds", "shadow", "start")
        names = [one.name for one in fields(EngineSample) if one.name not in others]
        counted = draw(st.sampled_from([None, ShadowTotals(draw(NUMBERS), draw(NUMBERS), (draw(NUMBERS),))]))
        odd: dict[str, Any] = draw(st.dictionaries(st.sampled_from(names), NUMBERS, max_size=5))
        one = replace(sample(step_model=draw(st.sampled_from([None, MODEL])), shadow=counted), **odd)
        age = draw(st.sampled_from([0.0, 1.0, 60.0, 400.0, -5.0]))
        seen = draw(st.sampled_from([one, one, None]))
        found.append(PodView(f"p{index}", draw(st.sampled_from(PHASES)), 0.0, seen, age))
    return tuple(found)


@settings(max_examples=25, deadline=None)
@given(history=st.lists(st.tuples(pods(), st.integers(0, 9), st.floats(0.1, 90.0)), max_size=12))
def test_a_law_stays_within_its_bounds_for_any_observation(
    history: list[tuple[tuple[PodView, ...], int, float]],
) -> None:
    for name in PEERS:
        law, now = LAWS[name].default(), 0.0
        memory = law.initial()
        for views, asked, seconds in history:
            now += seconds
            shown = tuple(
                replace(view, sample_at=None if view.sample_at is None else now - view.sample_at) for view in views
            )
            decision, memory = law.decide(SPEC, Observed(shown, asked), memory, now)
            assert decision.replicas is not None and 2 <= decision.replicas <= 7
            assert decision.bounds == ()

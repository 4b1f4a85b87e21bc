"""Variants of Sluice change what they name for the time of a decision, and nothing else."""

from dataclasses import fields

import pytest

from sluice_operator.autoscaler.replicas import need
from sluice_operator.autoscaler.settings import LAW, LawSettings
from sluice_sim.benchmark.corpus import tasks
from sluice_sim.benchmark.corpus.variants import CONSTANTS, RULES, SENSITIVE, VARIANTS, Variant
from sluice_sim.policies.policy import Law
from sluice_sim.policies.sluice import OURS
from tests.operator.autoscaler.fleet import Story, spec

# The fields of `LAW` that change no decision on replicas: they move admission, or bound the state, or reject samples.
OTHERS = {
    "delta_seconds",
    "lengths_seconds",
    "least_requests",
    "largest_value",
    "ttl_seconds",
    "slow_start_seconds",
    "slow_start_share",
    "reported_change",
    "budget_keep_factor",  # without a budget of accelerators
    "budget_keep_rate",
    "budget_division_seconds",
}
LOAD = ((60.0, 1.0), (120.0, 6.0), (300.0, 1.0))  # seconds, requests per second; one engine serves 3.7


def counts(law: Law) -> list[tuple[int, int]]:
    """Replicas before and after the law's decisions, on a fleet that follows Sluice: all laws see the same."""
    story = Story(spec=spec(scaling={"maxReplicas": 8, "scaleDownStabilizationSeconds": 60}))
    memory, found = law.initial(), []
    for seconds, rate in LOAD:
        for _ in range(round(seconds / 5.0)):
            story.run(5.0, rate)
            observed = story.observed()
            decision, memory = law.decide(story.spec, observed, memory, story.now)
            found.append((observed.replicas or 0, decision.desired))
    return found


def test_every_constant_is_varied_or_changes_no_decision_on_replicas() -> None:
    """A new constant belongs to one of the two."""
    assert set(SENSITIVE) | OTHERS == {field.name for field in fields(LawSettings)}
    assert not OTHERS & set(SENSITIVE)
    assert all(value > 0 for one in CONSTANTS.values() for value in (*one.constants.values(), *one.scaling.values()))


def test_factors_stay_at_least_one_and_shares_at_most_one() -> None:
    assert CONSTANTS["burst_memory_seconds-half"].scaling == {"burst_memory_seconds": 450}
    assert CONSTANTS["growth_most-half"].constants == {"growth_most": 1.5}
    assert CONSTANTS["cold_start_quantile-double"].constants == {"cold_start_quantile": 1.0}
    assert CONSTANTS["cold_starts_kept-half"].constants == {"cold_starts_kept": 8}


def test_a_variant_that_changes_nothing_decides_as_sluice() -> None:
    own = counts(OURS)
    assert counts(Variant()) == own
    assert max(after for _, after in own) > 1


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_leaves_the_law_as_it_was(name: str) -> None:
    """It decides without an error, and all that it changes exists."""
    law = VARIANTS[name]
    before = {field.name: getattr(LAW, field.name) for field in fields(LawSettings)}
    rules = {place: getattr(*place) for place in law.rules}
    story = Story(spec=spec(scaling={"maxReplicas": 8}))
    story.run(30.0, 5.0)
    memory = law.initial()
    for _ in range(20):
        story.run(5.0, 5.0)
        decision, memory = law.decide(story.spec, story.observed(), memory, story.now)
        assert decision.desired >= 1
    assert {field.name: getattr(LAW, field.name) for field in fields(LawSettings)} == before
    assert {place: getattr(*place) for place in rules} == rules


def test_an_error_in_a_variant_leaves_the_law_as_it_was() -> None:
    def broken(*_: object) -> int:
        raise RuntimeError("broken")

    place = need, "enough"
    before, trend_seconds = getattr(*place), LAW.trend_seconds
    story = Story()
    story.run(30.0, 1.0)
    law = Variant(constants={"trend_seconds": 1.0}, rules={place: broken})
    with pytest.raises(RuntimeError, match="broken"):
        law.decide(story.spec, story.observed(), law.initial(), story.now)
    assert (getattr(*place), LAW.trend_seconds) == (before, trend_seconds)


def test_without_any_rule_of_the_load_no_replica_is_added() -> None:
    left_out = ("no-memory", "no-lasting", "no-kv", "no-misses")
    law = Variant(rules={place: rule for name in left_out for place, rule in RULES[name].rules.items()})
    assert all(after <= before for before, after in counts(law))


def test_runs_of_different_variants_have_different_keys() -> None:
    keys = {name: tasks.key(tasks.LawRun("poisson-1", name)) for name in ("sluice", *VARIANTS)}
    assert len(set(keys.values())) == len(keys)
    assert all(key.startswith(tasks.OWN_PREFIX) for key in keys.values())


def test_another_value_of_a_variant_has_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    task = tasks.LawRun("poisson-1", "trend_seconds-half")
    before = tasks.key(task)
    monkeypatch.setitem(VARIANTS, task.law, Variant(constants={"trend_seconds": 300.0}))
    assert tasks.key(task) != before

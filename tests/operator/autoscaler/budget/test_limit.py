"""Stories about decide() inside an accelerator budget: who gets the replicas, and what the decisions report."""

from dataclasses import dataclass, replace
from typing import Any

from sluice_operator.autoscaler.budget.values import Budget, Want
from sluice_operator.autoscaler.values import Decision, Observed
from tests.operator.autoscaler.fleet import Story, spec

GPU = "nvidia.com/gpu"
OTHER = Want("other", each=1, priority=0, least=1, count=4, current=4, gains=(5.0, 2.0, 0.02, 0.01))
HIGH = 16.0  # requests per second: more than four replicas serve


def scaled(**scaling: Any) -> dict[str, Any]:
    return {
        "scaling": {"minReplicas": 1, "maxReplicas": 6, "scaleDownStabilizationSeconds": 60} | scaling,
        "engine": {"accelerator": {"count": 1}},
    }


@dataclass
class Budgeted(Story):
    """A deployment inside a budget; a test sets what the others hold."""

    budget: Budget | None = None

    def observed(self) -> Observed:
        return replace(super().observed(), budget=self.budget)


def story(budget: Budget | None, **scaling: Any) -> Budgeted:
    return Budgeted(spec=spec(**scaled(**scaling)), budget=budget)


def shared(limit: int, *others: Want, held: int | None = None, **fields: Any) -> Budget:
    return Budget(
        name="chat",
        resource=GPU,
        limit=limit,
        held=sum(each.current for each in others) if held is None else held,
        others=others,
        **fields,
    )


def newest(decisions: list[Decision]) -> Decision:
    return decisions[-1]


def test_a_budget_that_does_not_bind_changes_no_decision() -> None:
    free, roomy = story(None), story(shared(100, OTHER))
    assert [(each.replicas, each.reasons) for each in free.run(300, HIGH)] == [
        (each.replicas, each.reasons) for each in roomy.run(300, HIGH)
    ]


def test_a_scale_out_stops_at_the_budget_and_its_sentence_names_it() -> None:
    fleet = story(shared(3))
    last = newest(fleet.run(300, HIGH))
    assert fleet.replicas == 3
    assert last.budget is not None
    assert last.budget.binds
    assert last.want is not None
    assert last.want.count > 3
    sentences = fleet.sentences()
    assert any(
        "are needed; the namespace's accelerator budget (nvidia.com/gpu=3) gives 3" in each for each in sentences
    )
    assert not any("maxReplicas" in each for each in sentences)


def test_a_load_gets_the_replicas_that_gain_less_elsewhere_once_these_have_ended() -> None:
    fleet = story(shared(5, OTHER))
    fleet.run(120, HIGH)
    assert fleet.replicas == 1, "the other deployment still holds four"
    last = newest(fleet.run(30, HIGH))
    assert last.budget is not None
    assert "It stays at 1 until other pods have terminated and released theirs" in last.budget.sentence
    fleet.budget = shared(5, replace(OTHER, current=2), held=2)
    fleet.run(60, HIGH)
    assert fleet.replicas == 3


def test_a_higher_priority_takes_all_but_the_least_of_the_others() -> None:
    important = replace(OTHER, priority=10, count=5, gains=(5.0, 2.0, 1.0, 1.0, 1.0))
    fleet = story(shared(6, important, held=0))
    last = newest(fleet.run(300, HIGH))
    assert fleet.replicas == 1
    assert last.budget is not None
    assert "other has 5 (priority 10, here 0)" in last.budget.sentence
    fleet.spec = spec(**scaled(priority=20))
    fleet.run(60, HIGH)
    assert fleet.replicas == 5


def test_a_smaller_budget_scales_in_at_once_with_a_reason() -> None:
    fleet = story(shared(5))
    fleet.run(300, HIGH)
    assert (fleet.replicas or 0) > 2
    fleet.budget = shared(2)
    (reason,) = newest(fleet.run(5, HIGH)).reasons[:1]
    assert fleet.replicas == 2
    assert reason.binding == "AcceleratorBudget"
    assert dict(reason.numbers)["budgetAccelerators"] == 2


def test_min_replicas_give_way_to_the_budget() -> None:
    fleet = story(shared(2), minReplicas=4)
    fleet.run(60, 0.0)
    assert fleet.replicas == 2


def test_the_first_count_is_within_the_budget() -> None:
    fleet = story(shared(0))
    fleet.replicas = None
    fleet.engines.clear()
    decision = fleet.decide()
    assert (decision.replicas, decision.desired) == (0, 0)
    assert decision.reasons[0].binding == "AcceleratorBudget"


def test_a_held_request_wakes_no_replica_without_an_accelerator() -> None:
    fleet = story(shared(1, replace(OTHER, priority=5, least=1, current=1), held=1), minReplicas=0)
    fleet.replicas, fleet.held = 0, 3
    fleet.engines.clear()
    decision = fleet.decide()
    assert decision.replicas == 0
    assert decision.budget is not None
    assert decision.budget.binds
    fleet.budget = shared(2, replace(OTHER, priority=5, least=1, count=1, current=1), held=1)
    assert fleet.decide().replicas == 1


def test_an_idle_replica_gives_way_to_a_model_that_has_none() -> None:
    """Only where minReplicas is 0 and a gateway holds requests."""
    woken = Want("woken", each=1, priority=0, least=1, count=1, current=0)
    fleet = story(shared(1, woken), minReplicas=0)
    fleet.held = 0
    fleet.run(60, 0.0)
    assert fleet.replicas == 0
    kept = story(shared(1, woken), minReplicas=1)
    kept.run(60, 0.0)
    assert kept.replicas == 1


def test_an_external_scaler_is_limited_too() -> None:
    fleet = story(shared(2), mode="External")
    fleet.spec = fleet.spec.model_copy(update={"replicas": 5})
    decision = fleet.decide()
    assert decision.replicas == 2
    assert "accelerator budget" in decision.reasons[0].sentence


def test_an_external_scaler_beyond_max_replicas_is_limited_too() -> None:
    """Mode External ignores maxReplicas, 6 here, and not the budget."""
    fleet = story(shared(8), mode="External")
    fleet.spec = fleet.spec.model_copy(update={"replicas": 10})
    assert fleet.decide().replicas == 8


def test_an_invalid_budget_keeps_the_count_and_grants_nothing() -> None:
    fleet = story(shared(0, problem="The annotation is wrong."))
    last = newest(fleet.run(300, HIGH))
    assert fleet.replicas == 1
    assert last.budget is not None
    assert last.budget.reason == "AcceleratorBudgetInvalid"
    assert last.budget.sentence.startswith("The annotation is wrong. Until it is corrected, no replica is added")


def test_an_external_scaler_may_lower_its_count_whatever_the_annotation_says() -> None:
    fleet = story(shared(0, problem="The annotation is wrong."), mode="External")
    fleet.replicas = 3
    decision = fleet.decide()
    assert decision.replicas == fleet.spec.replicas == 1
    assert "follows spec.replicas" in decision.reasons[0].sentence


def test_no_replica_is_added_before_all_deployments_are_observed() -> None:
    fleet = story(shared(100, unobserved=("draft",)))
    last = newest(fleet.run(300, HIGH))
    assert fleet.replicas == 1
    assert last.budget is not None
    assert "draft" in last.budget.sentence
    fleet.budget = shared(100)
    fleet.run(60, HIGH)
    assert (fleet.replicas or 0) > 1


def test_nothing_moves_by_the_first_scrapes_of_a_new_operator() -> None:
    """Its predictions count after a stabilization window; until then the replicas in force are kept."""
    fleet = story(shared(3))
    fleet.run(300, HIGH)
    assert fleet.replicas == 3
    fleet.state = type(fleet.state)()
    greedy = Want("greedy", each=1, priority=0, least=1, count=3, current=0, gains=(99.0, 99.0, 99.0))
    fleet.budget = shared(4, greedy, held=0)
    fleet.run(50, HIGH)
    assert fleet.replicas == 3
    fleet.run(60, HIGH)
    assert fleet.replicas == 1

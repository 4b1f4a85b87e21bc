"""The controllers' arithmetic: who starts, who leaves, in which order."""

from hypothesis import given
from hypothesis import strategies as st

from sluice_operator.cluster.local.deployment_controller import Actions, Replica, Scale, next_actions


def pod(name: str, *, current: bool = True, ready: bool = True, cost: int = 0, created: float = 0.0) -> Replica:
    return Replica(name, current, ready, cost, created)


def test_missing_replicas_are_started() -> None:
    assert next_actions(Scale(3), [pod("a")]) == Actions(create=2)


def test_a_converged_deployment_needs_no_action() -> None:
    assert next_actions(Scale(2), [pod("a"), pod("b")]) == Actions()


def test_a_pod_that_is_not_ready_leaves_before_a_cheaper_ready_one() -> None:
    pods = [pod("cheap", cost=-5), pod("loading", ready=False, cost=100), pod("dear", cost=7)]
    assert next_actions(Scale(2), pods).delete == ("loading",)


def test_scale_in_deletes_the_lowest_deletion_cost_first_and_then_the_youngest() -> None:
    pods = [pod("dear", cost=9), pod("old", cost=1, created=1.0), pod("young", cost=1, created=2.0)]
    assert next_actions(Scale(2), pods).delete == ("young",)
    assert next_actions(Scale(1), pods).delete == ("young", "old")


def test_a_changed_template_surges_before_it_drains() -> None:
    old = [pod("a", current=False), pod("b", current=False)]
    assert next_actions(Scale(2), old) == Actions(create=1)
    assert next_actions(Scale(2), [*old, pod("new", ready=False)]) == Actions()
    assert next_actions(Scale(2), [*old, pod("new")]) == Actions(create=1, delete=("a",))


def test_old_pods_that_never_became_ready_are_deleted_at_once() -> None:
    actions = next_actions(Scale(1), [pod("a", current=False, ready=False)])
    assert actions == Actions(create=1, delete=("a",))


replicas = st.builds(
    Replica,
    name=st.uuids().map(str),
    current=st.booleans(),
    ready=st.booleans(),
    cost=st.integers(-3, 3),
    created=st.floats(0, 10),
)


@given(pods=st.lists(replicas, max_size=8), desired=st.integers(0, 4), surge=st.integers(0, 2), away=st.integers(0, 1))
def test_any_state_converges_and_keeps_enough_ready_pods(
    pods: list[Replica], desired: int, surge: int, away: int
) -> None:
    scale = Scale(desired, surge, away)
    for step in range(40):
        actions = next_actions(scale, pods)
        ready, settled = sum(one.ready for one in pods), all(one.ready for one in pods)
        pods = [one for one in pods if one.name not in actions.delete]
        assert sum(one.ready for one in pods) >= min(ready, desired - away)
        pods = [Replica(one.name, one.current, True, one.cost, one.created) for one in pods]
        pods += [Replica(f"new-{step}-{n}", True, False, 0, 20.0) for n in range(actions.create)]
        if settled and actions == Actions():
            break
    assert sorted(one.current for one in pods) == [True] * desired

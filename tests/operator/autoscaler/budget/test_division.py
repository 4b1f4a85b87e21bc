"""A division that is kept over passes: the same shares, made anew where an input changes."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sluice_operator.autoscaler.budget.division import EXACT, Division
from sluice_operator.autoscaler.budget.share import share
from sluice_operator.autoscaler.budget.values import Budget, Want
from sluice_operator.autoscaler.settings import LAW
from tests.operator.autoscaler.budget.test_share import BUDGETS, wants

MANY = EXACT + 10


def budget(limit: int, others: tuple[Want, ...], now: float = 0.0, fixed: int = 0) -> Budget:
    return Budget("own", "nvidia.com/gpu", limit, fixed=fixed, others=others, now=now)


def fleet(count: int = MANY) -> tuple[Want, tuple[Want, ...]]:
    """One deployment and the others, which all want three replicas and have two."""
    found = [Want(f"m{n:03}", 1, 0, 1, 3, 2, (5.0, 2.0, n / count)) for n in range(count)]
    return found[0], tuple(found[1:])


def noted(others: tuple[Want, ...]) -> Division:
    division = Division()
    for want in others:
        division.note(want)
    return division


@given(st.lists(st.tuples(BUDGETS, wants()), min_size=1, max_size=4))
def test_of_few_deployments_every_pass_gets_the_division_of_now(passes: list[tuple[int, list[Want]]]) -> None:
    division = Division()
    for limit, found in passes:
        own = Want("own", 1, 0, 0, 2, 1, (1.0, 0.5))
        assert division.shares(budget(limit, tuple(found)), own) == share(limit, (*found, own))


def test_of_many_a_division_serves_the_passes_of_all_while_only_predictions_move() -> None:
    own, others = fleet()
    division, limit = noted(others), 2 * MANY
    first = division.shares(budget(limit, others), own)
    assert first == share(limit, (*others, own))
    for want in (own, *others):
        moved = replace(want, gains=(4.0, 1.0, 9.0))
        rest = tuple(each for each in (own, *others) if each.name != want.name)
        assert division.shares(budget(limit, rest, LAW.budget_division_seconds / 2), moved) == first
    assert division.count == 1


def test_it_is_made_anew_after_its_time_and_where_a_want_the_limit_or_a_member_changes() -> None:
    own, others = fleet()
    division, limit = noted(others), 2 * MANY
    division.shares(budget(limit, others), own)
    larger = replace(own, count=4, gains=(5.0, 2.0, 1.0, 1.0))
    assert division.shares(budget(limit, others), larger) == share(limit, (*others, larger))
    assert division.shares(budget(limit - 5, others), larger) == share(limit - 5, (*others, larger))
    assert division.shares(budget(limit, others, fixed=9), larger) == share(limit - 9, (*others, larger))
    division.drop(others[0].name)
    assert division.shares(budget(limit, others[1:]), larger) == share(limit, (*others[1:], larger))
    assert division.count == 5
    moved = replace(larger, gains=(9.0, 9.0, 9.0, 9.0))
    later = budget(limit, others[1:], LAW.budget_division_seconds)
    assert division.shares(later, moved) == share(limit, (*others[1:], moved))
    assert division.count == 6


def test_what_is_noted_again_unchanged_changes_nothing() -> None:
    own, others = fleet()
    division = noted(others)
    division.shares(budget(MANY, others), own)
    for want in (own, *others):
        division.note(want)
    division.drop("absent")
    division.shares(budget(MANY, others), own)
    assert division.count == 1

"""Properties of the division of an accelerator budget."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_operator.autoscaler.budget.share import envelope, share, worth
from sluice_operator.autoscaler.budget.values import Want
from sluice_operator.autoscaler.settings import LAW

BUDGETS = st.integers(0, 40)


@st.composite
def want(draw: st.DrawFn, name: str, each: int | None = None, priority: int | None = None) -> Want:
    count = draw(st.integers(0, 8))
    gains = st.lists(st.floats(0.0, 10.0), min_size=count, max_size=count).map(tuple)
    return Want(
        name=name,
        each=draw(st.sampled_from((1, 2, 4, 8))) if each is None else each,
        priority=draw(st.integers(-1, 1)) if priority is None else priority,
        least=draw(st.integers(0, count)),
        count=count,
        current=draw(st.integers(0, count)),
        gains=draw(st.none() | gains),
    )


@st.composite
def wants(draw: st.DrawFn, each: int | None = None, priority: int | None = None) -> list[Want]:
    return [draw(want(f"m{number}", each, priority)) for number in range(draw(st.integers(0, 5)))]


def used(found: list[Want], shares: dict[str, int]) -> int:
    return sum(shares[one.name] * one.each for one in found)


@given(BUDGETS, wants())
def test_never_more_than_the_budget_and_never_more_than_wanted(budget: int, found: list[Want]) -> None:
    shares = share(budget, found)
    assert shares.keys() == {one.name for one in found}
    assert used(found, shares) <= budget
    assert all(0 <= shares[one.name] <= one.count for one in found)


@given(BUDGETS, wants())
def test_nothing_that_fits_stays_unused(budget: int, found: list[Want]) -> None:
    shares = share(budget, found)
    left = budget - used(found, shares)
    assert all(one.each > left for one in found if shares[one.name] < one.count)


@given(wants())
def test_a_budget_that_holds_all_gives_all(found: list[Want]) -> None:
    assert share(sum(one.each * one.count for one in found), found) == {one.name: one.count for one in found}


@given(BUDGETS, wants(each=1))
def test_a_larger_budget_lowers_no_count(budget: int, found: list[Want]) -> None:
    smaller, larger = share(budget, found), share(budget + 1, found)
    assert all(larger[name] >= count for name, count in smaller.items())


@given(BUDGETS, wants())
def test_a_larger_budget_lowers_no_count_of_the_first_deployment_that_is_served(budget: int, found: list[Want]) -> None:
    first = Want("first", each=3, priority=9, least=4, count=4, current=0)
    assert share(budget + 1, [*found, first])["first"] >= share(budget, [*found, first])["first"]


@given(BUDGETS, wants(), st.randoms())
def test_the_result_depends_on_no_order(budget: int, found: list[Want], chance: st.DataObject) -> None:
    mixed = list(found)
    chance.shuffle(mixed)  # type: ignore[attr-defined]
    assert share(budget, mixed) == share(budget, found)


@given(BUDGETS, wants(each=1))
def test_no_replica_beyond_the_least_is_granted_while_a_least_one_is_missing(budget: int, found: list[Want]) -> None:
    shares = share(budget, found)
    is_short = any(shares[one.name] < one.least for one in found)
    assert not is_short or all(shares[one.name] <= one.least for one in found)


@given(BUDGETS, wants(each=1))
def test_a_lower_priority_gives_first(budget: int, found: list[Want]) -> None:
    """A deployment gets a least replica only if every higher one has its own, and likewise beyond."""
    shares = share(budget, found)
    for high in found:
        for low in (one for one in found if one.priority < high.priority):
            assert shares[high.name] >= high.least or shares[low.name] == 0
            assert shares[high.name] == high.count or shares[low.name] <= low.least


@given(BUDGETS, wants(each=1, priority=0))
def test_what_is_granted_is_worth_more_than_what_is_not(budget: int, found: list[Want]) -> None:
    shares = share(budget, found)
    last = [worth(one)[shares[one.name] - 1] for one in found if shares[one.name] > one.least]
    refused = [worth(one)[shares[one.name]] for one in found if one.least <= shares[one.name] < one.count]
    assert not last or not refused or min(last) >= max(refused)


@given(BUDGETS, wants(priority=0))
def test_a_division_in_force_is_stable(budget: int, found: list[Want]) -> None:
    """Once the shares are in force, the same predictions move nothing."""
    shares = share(budget, found)
    settled = [replace(one, current=shares[one.name]) for one in found]
    assert share(budget, settled) == shares


@given(wants(each=1, priority=0), st.data())
def test_a_replica_moves_only_for_a_gain_above_the_margin(found: list[Want], data: st.DataObject) -> None:
    budget = sum(one.current for one in found)
    shares = share(budget, found)
    lost = [one for one in found if one.least <= shares[one.name] < one.current and one.gains is not None]
    won = [one for one in found if shares[one.name] > max(one.current, one.least)]
    for loser in lost:
        for winner in won:
            kept = envelope(loser.gains or ())[shares[loser.name]]
            gained = envelope(winner.gains or ())[shares[winner.name] - 1]
            assert gained >= LAW.budget_keep_factor * kept + LAW.budget_keep_rate


@given(st.integers(1, 8), wants(each=1, priority=0))
def test_replicas_without_a_prediction_are_kept_and_order_nothing(current: int, found: list[Want]) -> None:
    dark = Want("dark", each=1, priority=0, least=0, count=8, current=current)
    least = sum(one.least for one in found)
    shares = share(least + current, [*found, dark])
    assert shares["dark"] >= min(current, least + current - sum(min(one.least, one.count) for one in found))


@given(st.lists(st.floats(0.0, 10.0), max_size=12))
def test_the_envelope_is_concave_and_keeps_the_sum(gains: list[float]) -> None:
    found = envelope(gains)
    assert len(found) == len(gains)
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(found))
    assert sum(found) == pytest.approx(sum(gains))


def test_the_larger_gain_per_accelerator_gets_the_next_replica() -> None:
    small = Want("small", each=1, priority=0, least=1, count=4, current=1, gains=(5.0, 2.0, 1.0, 0.5))
    large = Want("large", each=2, priority=0, least=1, count=3, current=1, gains=(9.0, 3.0, 1.0))
    assert share(8, [small, large]) == {"small": 4, "large": 2}
    assert share(6, [small, large]) == {"small": 2, "large": 2}
    assert share(5, [small, large]) == {"small": 3, "large": 1}


def test_replicas_that_serve_only_together_are_granted_together() -> None:
    cliff = Want("cliff", each=1, priority=0, least=0, count=3, current=0, gains=(0.0, 0.0, 9.0))
    slope = Want("slope", each=1, priority=0, least=0, count=3, current=0, gains=(2.0, 2.0, 2.0))
    assert share(3, [cliff, slope]) == {"cliff": 3, "slope": 0}


def test_noise_of_a_fifth_moves_no_replica_between_equal_loads() -> None:
    chance = random.Random(3)
    shares = {"a": 3, "b": 2}
    for _ in range(720):
        noisy = {name: tuple(g * chance.uniform(0.8, 1.2) for g in (4.0, 2.0, 1.0, 0.5)) for name in shares}
        found = [Want(name, 1, 0, 1, 4, current, noisy[name]) for name, current in shares.items()]
        shares = share(5, found)
        assert shares == {"a": 3, "b": 2}

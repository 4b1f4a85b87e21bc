"""The body budget is bounded, counts each byte once and never evicts a complete body."""

from hypothesis import given
from hypothesis import strategies as st

from sluice.httpapi.body_budget import SMALL_BODY_BYTES, BodyBudget, BodyReservation
from sluice_engine.server.errors import Unavailable

LARGE, SMALL = 6 * SMALL_BODY_BYTES, 3 * SMALL_BODY_BYTES
BODIES = 6

moves = st.tuples(
    st.integers(0, BODIES - 1),
    st.sampled_from(["reserve", "reserve", "complete", "release", "take"]),
    st.integers(1, 2 * SMALL_BODY_BYTES),
)


@given(st.lists(moves, max_size=60))
def test_the_budget_is_never_exceeded_and_only_incomplete_bodies_are_cut_off(steps: list[tuple[int, str, int]]) -> None:
    budget = BodyBudget(LARGE, SMALL)
    cut: list[int] = []
    complete: set[int] = set()
    bodies = [BodyReservation(lambda index=index: cut.append(index)) for index in range(BODIES)]  # type: ignore[misc]
    for index, move, count in steps:
        reservation = bodies[index]
        try:
            if move == "reserve" and index not in complete:
                budget.reserve(reservation, count)
            elif move == "complete":
                budget.complete(reservation)
                complete.add(index)
            elif move == "take" and not reservation.count and not reservation.evicted:
                budget.take(reservation, count)
                complete.add(index)
            elif move == "release":
                budget.release(reservation)
        except Unavailable:
            assert reservation.count == 0
        assert budget.count == sum(body.count for body in bodies) <= LARGE + SMALL
        assert sum(body.count for body in bodies if body.count > SMALL_BODY_BYTES) <= LARGE
        assert sum(body.count for body in bodies if body.count <= SMALL_BODY_BYTES) <= SMALL
        assert len(cut) == len(set(cut))
        assert complete.isdisjoint(cut)
        assert all(bodies[each].evicted and bodies[each].count == 0 for each in cut)


def test_the_largest_incomplete_body_is_cut_off_and_only_complete_bodies_cause_a_rejection() -> None:
    budget = BodyBudget(LARGE, SMALL)
    gone: list[str] = []
    larger, smaller, newcomer = (
        BodyReservation(lambda name=name: gone.append(name))  # type: ignore[misc]
        for name in ("larger", "smaller", "new")
    )
    budget.reserve(smaller, LARGE // 3)
    budget.reserve(larger, LARGE // 2)
    budget.reserve(newcomer, LARGE // 2)
    assert gone == ["larger"]
    budget.complete(smaller)
    budget.complete(newcomer)
    late = BodyReservation(lambda: gone.append("late"))
    try:
        budget.reserve(late, LARGE // 2)
    except Unavailable as error:
        assert "was rejected" in error.message
    else:
        raise AssertionError("the body exceeds the budget")
    budget.reserve(late, 1000)  # small bodies have their own budget
    assert gone == ["larger"]

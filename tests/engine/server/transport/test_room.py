"""The body budget is bounded, counts each byte once and never evicts a complete body."""

from hypothesis import given
from hypothesis import strategies as st

from sluice_engine.server.errors import Unavailable
from sluice_engine.server.transport.body_budget import SMALL_BODY_BYTES, Held, Room

LARGE, SMALL = 6 * SMALL_BODY_BYTES, 3 * SMALL_BODY_BYTES
BODIES = 6

moves = st.tuples(
    st.integers(0, BODIES - 1),
    st.sampled_from(["take", "take", "arrived", "give"]),
    st.integers(1, 2 * SMALL_BODY_BYTES),
)


@given(st.lists(moves, max_size=60))
def test_whatever_comes_the_room_is_kept_and_only_what_is_arriving_is_cut(steps: list[tuple[int, str, int]]) -> None:
    room = Room(LARGE, SMALL)
    cut: list[int] = []
    complete: set[int] = set()
    bodies = [Held(lambda index=index: cut.append(index)) for index in range(BODIES)]  # type: ignore[misc]
    for index, move, count in steps:
        held = bodies[index]
        try:
            if move == "take" and index not in complete:
                room.take(held, count)
            elif move == "arrived":
                room.arrived(held)
                complete.add(index)
            elif move == "give":
                room.give_back(held)
        except Unavailable:
            assert held.count == 0
        assert room.count == sum(body.count for body in bodies) <= LARGE + SMALL
        assert sum(body.count for body in bodies if body.count > SMALL_BODY_BYTES) <= LARGE
        assert sum(body.count for body in bodies if body.count <= SMALL_BODY_BYTES) <= SMALL
        assert len(cut) == len(set(cut))
        assert complete.isdisjoint(cut)
        assert all(bodies[each].cut and bodies[each].count == 0 for each in cut)


def test_only_complete_bodies_keep_a_newcomer_out_and_the_largest_one_goes_first() -> None:
    room = Room(LARGE, SMALL)
    gone: list[str] = []
    larger, smaller, newcomer = (Held(lambda name=name: gone.append(name)) for name in ("larger", "smaller", "new"))  # type: ignore[misc]
    room.take(smaller, LARGE // 3)
    room.take(larger, LARGE // 2)
    room.take(newcomer, LARGE // 2)
    assert gone == ["larger"]
    room.arrived(smaller)
    room.arrived(newcomer)
    late = Held(lambda: gone.append("late"))
    try:
        room.take(late, LARGE // 2)
    except Unavailable as refusal:
        assert "was refused" in refusal.message
    else:
        raise AssertionError("there was room where there is none")
    room.take(late, 1000)  # small bodies have their own budget
    assert gone == ["larger"]

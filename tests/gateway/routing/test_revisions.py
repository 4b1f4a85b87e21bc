"""Which revision a request goes to while its model has a canary."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_gateway.routing import Canary, Replica, draw_of
from sluice_gateway.routing.revisions import NEVER, by_revision, chooses_canary

TRIAL = frozenset({"new-1"})


def groups(ready: dict[str, bool], share: float, draw: float) -> list[list[str]]:
    found = by_revision([Replica(name, ready) for name, ready in ready.items()], Canary(share, TRIAL), draw)
    return [[one.name for one in group] for group in found]


@pytest.mark.parametrize(
    ("new", "old", "draw", "expected"),
    [
        (True, True, 0.05, [["new-1"], ["old-1"]]),  # for the canary, then for the others
        (True, True, 0.5, [["old-1"]]),  # never for the canary while a stable replica serves
        (False, True, 0.05, [["old-1"], ["new-1"]]),  # no canary serves
        (True, False, 0.5, [["new-1"], ["old-1"]]),  # no stable replica serves
    ],
)
def test_the_draw_chooses_the_revision_and_the_other_is_the_way_out(
    new: bool, old: bool, draw: float, expected: list[list[str]]
) -> None:
    assert groups({"old-1": old, "new-1": new}, 0.1, draw) == expected


def test_after_all_stable_replicas_were_tried_the_canary_is_left() -> None:
    assert groups({"new-1": True}, 0.1, 0.5) == [["new-1"], []]


def test_a_canary_without_weight_gets_no_request_and_one_with_all_gets_every_one() -> None:
    assert not chooses_canary(Canary(0.0, TRIAL), 0.0)
    assert chooses_canary(Canary(1.0, TRIAL), 1.0 - 2.0**-53)
    assert not chooses_canary(Canary(1.0, TRIAL), NEVER)


@given(st.lists(st.text(), min_size=1, max_size=20), st.floats(0, 1), st.floats(0, 1))
def test_a_growing_weight_only_moves_sessions_to_the_canary(sessions: list[str], one: float, other: float) -> None:
    low, high = sorted((one, other))
    for session in sessions:
        draw = draw_of(session)
        assert 0.0 <= draw < 1.0
        assert draw == draw_of(session)
        assert chooses_canary(Canary(low, TRIAL), draw) <= chooses_canary(Canary(high, TRIAL), draw)


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_sessions_and_draws_follow_the_weight(share: float) -> None:
    canary, drawn = Canary(share, TRIAL), random.Random(1)
    by_session = sum(chooses_canary(canary, draw_of(f"tenant/{n}")) for n in range(10_000))
    by_draw = sum(chooses_canary(canary, drawn.random()) for _ in range(10_000))
    assert by_session == pytest.approx(10_000 * share, rel=0.1)
    assert by_draw == pytest.approx(10_000 * share, rel=0.1)

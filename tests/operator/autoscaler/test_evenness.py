"""How requests in flight are split over replicas is measured, and what an even split is worth."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sluice_operator.autoscaler.signals.freshness import Fresh
from sluice_operator.autoscaler.signals.load_balance import weigh
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import PodView
from tests.operator.autoscaler.fleet import Engine


def fleet(running: list[float], since: float = 0.0) -> Fresh:
    """Ready replicas with so many requests each."""
    sample = Engine().sample()
    views = [PodView(f"chat-{number}", "ready", since) for number in range(len(running))]
    known = tuple((view, replace(sample, running=count)) for view, count in zip(views, running, strict=True))
    return Fresh(ready=tuple(views), known=known)


def watched(running: list[float], seconds: int = 600, since: float = 0.0) -> float:
    memory = AutoscalerState()
    for second in range(1000, 1000 + seconds, 5):
        memory = weigh(memory, fleet(running, since), float(second))
    return memory.unevenness


def test_replicas_that_stay_alike_are_split_evenly_and_others_by_lot() -> None:
    assert watched([20.0, 21.0, 20.0, 19.0]) < 0.1
    assert watched([10.0, 35.0, 20.0, 15.0]) == 1.0


def test_one_replica_few_requests_and_new_replicas_say_nothing() -> None:
    assert watched([40.0]) == 1.0
    assert watched([2.0, 2.0, 2.0]) == 1.0
    assert watched([20.0, 20.0], seconds=30, since=990.0) == 1.0


@given(st.lists(st.floats(0.0, 1e6), max_size=64), st.floats(0.0, 1e9))
def test_it_stays_between_an_even_split_and_lots(running: list[float], now: float) -> None:
    memory = weigh(AutoscalerState(), fleet(running), now)
    assert 0.05 <= weigh(memory, fleet(running), now + 5.0).unevenness <= 1.0

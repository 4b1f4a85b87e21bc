"""The split of requests in flight over replicas is measured: near 0 where it is even, 1 where it is random."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sluice_operator.autoscaler.signals.freshness import FleetMetrics
from sluice_operator.autoscaler.signals.load_balance import LoadBalanceState, update_unevenness
from sluice_operator.autoscaler.values import PodView
from tests.operator.autoscaler.fleet import Engine


def fleet(running: list[float], since: float = 0.0) -> FleetMetrics:
    """Ready replicas with so many requests each."""
    sample = Engine().sample()
    views = [PodView(f"chat-{number}", "ready", since) for number in range(len(running))]
    measured = tuple((view, replace(sample, running=count)) for view, count in zip(views, running, strict=True))
    return FleetMetrics(ready=tuple(views), measured=measured)


def unevenness(running: list[float], seconds: int = 600, since: float = 0.0) -> float:
    state = LoadBalanceState()
    for second in range(1000, 1000 + seconds, 5):
        state = update_unevenness(state, fleet(running, since), float(second))
    return state.unevenness


def test_equally_loaded_replicas_mean_an_even_split_and_unequally_loaded_ones_a_random_split() -> None:
    assert unevenness([20.0, 21.0, 20.0, 19.0]) < 0.1
    assert unevenness([10.0, 35.0, 20.0, 15.0]) == 1.0


def test_one_replica_few_requests_and_new_replicas_do_not_change_the_estimate() -> None:
    assert unevenness([40.0]) == 1.0
    assert unevenness([2.0, 2.0, 2.0]) == 1.0
    assert unevenness([20.0, 20.0], seconds=30, since=990.0) == 1.0


@given(st.lists(st.floats(0.0, 1e6), max_size=64), st.floats(0.0, 1e9))
def test_the_estimate_stays_within_its_bounds(running: list[float], now: float) -> None:
    state = update_unevenness(LoadBalanceState(), fleet(running), now)
    assert 0.05 <= update_unevenness(state, fleet(running), now + 5.0).unevenness <= 1.0

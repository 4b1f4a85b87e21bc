"""Requests that come while all replicas load are refused, and the forecast knows of them when the first is ready."""

from dataclasses import replace

from sluice_operator.autoscaler import decide
from sluice_operator.autoscaler.signals.arrival_history import ArrivalState
from sluice_operator.autoscaler.state import AutoscalerState
from sluice_operator.autoscaler.values import Decision, Observed, PodView
from tests.operator.autoscaler.fleet import Engine, spec, with_signals

LOADS = 60.0  # seconds
OVER = 4.0  # requests per second; one replica holds about 2.5


def first_ready(rate: float, *, answers: bool = True) -> tuple[Decision, AutoscalerState]:
    """The decision when the first replica is ready; the request lengths are known from an earlier one."""
    engine, state, now = Engine(), AutoscalerState(), 0.0
    engine.pass_time(2.0, 60.0)
    known = engine.sample()
    decision, state = decide(spec(), Observed((PodView("old", "ready", -9.0, known, now),), replicas=1), state, now)
    engine.pass_time(2.0, 5.0)
    now += 5.0
    old = PodView("old", "ready", -9.0, engine.sample(), now)
    decision, state = decide(spec(), Observed((old,), replicas=1), state, now)
    state = with_signals(state, arrivals=ArrivalState())  # only the request lengths are known
    while now < 5.0 + LOADS:
        now += 5.0
        count = rate * (now - 5.0)
        loads = replace(Engine().sample(), arrived_total=count, rejected_total=count, kv_blocks=0.0, block_size=0.0)
        view = PodView("new", "loading", 5.0, loads if answers else None, now if answers else None)
        decision, state = decide(spec(), Observed((view,), replicas=1), state, now)
    assert decision.metrics == "NoPods"
    ready = replace(Engine().sample(), arrived_total=count, rejected_total=count)
    decision, state = decide(spec(), Observed((PodView("new", "ready", now, ready, now),), replicas=1), state, now + 1)
    return decision, state


def test_arrivals_while_all_replicas_load_scale_out_as_soon_as_one_is_ready() -> None:
    decision, _ = first_ready(OVER)
    assert decision.desired >= 2
    assert first_ready(0.5)[0].desired == first_ready(OVER, answers=False)[0].desired == 1


def test_zero_arrivals_at_a_loading_engine_are_no_measurement() -> None:
    assert first_ready(0.0)[1].signals.arrivals.slots == first_ready(0.0, answers=False)[1].signals.arrivals.slots == ()

"""A request's tries: never twice the same replica, and no more of them than the budget allows, whatever replicas answer."""

from hypothesis import given
from hypothesis import strategies as st

from sluice_gateway.forwarding.dispatch import Claim, Dispatcher
from sluice_gateway.forwarding.retry_budget import RESERVE, SHARE, RetryBudget
from sluice_gateway.replicas.backend import Backend
from sluice_gateway.replicas.fleet import Fleet
from sluice_gateway.replicas.state import REFUSES
from sluice_gateway.routing import POLICIES, Prompt, Routing

outcomes_drawn = st.lists(st.sampled_from(["answered", "lost", "rejected", "refused"]), min_size=1, max_size=8)


@given(
    st.integers(1, 6),
    st.sampled_from(POLICIES),
    st.lists(st.tuples(outcomes_drawn, st.sets(st.integers(0, 5))), min_size=1, max_size=40),
)
async def test_no_replica_gets_a_request_twice_and_the_budget_holds(
    replicas: int, policy: str, requests: list[tuple[list[str], set[int]]]
) -> None:
    backends = [Backend(f"r{number}", "127.0.0.1", 1 + number) for number in range(replicas)]
    fleet = Fleet(lambda: backends, lambda _: Routing(policy))  # type: ignore[arg-type]
    dispatcher, budget, retries = Dispatcher(fleet, None), RetryBudget(), 0
    prompt = Prompt(100.0, (1, 2), 50.0)
    for number, (outcomes, back) in enumerate(requests, 1):
        for place, state in enumerate(fleet.states()):
            if place in back:
                fleet.back(state, None)
        budget.request()
        tried: list[str] = []
        for outcome in outcomes:
            attempt, _ = await dispatcher.place(prompt, None, Claim(), tried)
            if attempt is None:
                break
            assert attempt.state.fault is None
            assert attempt.state.backend.name not in tried
            tried.append(attempt.state.backend.name)
            if outcome == "refused":
                fleet.out(attempt.state, REFUSES)
            fleet.end(attempt)
            if outcome == "answered" or (outcome != "refused" and not budget.take()):
                break
            retries += outcome != "refused"
        assert retries <= SHARE * number + RESERVE + 1e-6
    assert all(state.in_flight == 0 for state in fleet.states())

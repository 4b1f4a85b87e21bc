"""What bounds the retries of a gateway: a share of its traffic."""

from hypothesis import given
from hypothesis import strategies as st

from sluice_gateway.forwarding.retry_budget import RESERVE, SHARE, RetryBudget


@given(st.lists(st.booleans(), max_size=2000))
def test_retries_never_exceed_their_share_of_the_requests_and_the_reserve(calls: list[bool]) -> None:
    budget, requests, retries = RetryBudget(), 0, 0
    for is_request in calls:
        if is_request:
            budget.request()
            requests += 1
        else:
            retries += budget.take()
        assert retries <= SHARE * requests + RESERVE + 1e-6

"""What bounds a gateway: the bytes of all bodies, and the share of retries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_gateway.body_budget import MAX_BODY_BYTES, BodyBudget, TooManyBytes
from sluice_gateway.retry_budget import RESERVE, SHARE, RetryBudget


def test_bodies_that_do_not_fit_are_refused_and_room_comes_back() -> None:
    budget = BodyBudget(most=MAX_BODY_BYTES + 100)
    with budget.reserve(None) as unannounced:
        with pytest.raises(TooManyBytes), budget.reserve(101):
            pass
        budget.arrived(unannounced, 50)
        with budget.reserve(MAX_BODY_BYTES + 50):
            assert budget.reserved == MAX_BODY_BYTES + 100
    assert budget.reserved == 0


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

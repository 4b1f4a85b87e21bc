"""What bounds a gateway: the bytes of all bodies, and the share of retries."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_gateway.body_budget import MAX_BODY_BYTES, BodyBudget, BodyTooLarge, TooManyBytes
from sluice_gateway.retry_budget import RESERVE, SHARE, RetryBudget


def test_bodies_that_do_not_fit_are_refused_and_room_comes_back() -> None:
    budget = BodyBudget(most=MAX_BODY_BYTES + 100)
    with budget.reservation() as one:
        budget.take(one, MAX_BODY_BYTES)
        with pytest.raises(BodyTooLarge):
            budget.take(one, 1)
        with pytest.raises(TooManyBytes), budget.reservation() as other:
            budget.take(other, 100)
            budget.take(other, 1)
        assert budget.held == MAX_BODY_BYTES
    assert budget.held == 0


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

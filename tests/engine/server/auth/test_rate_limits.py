"""Token buckets: what they admit over minutes of an injected clock, and what they say in headers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.auth.key_file import ApiKey
from sluice.auth.rate_limits import RateLimits, duration
from sluice_engine.server.errors import RateLimited


class Clock:
    """Seconds that only the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def key(**limits: int) -> ApiKey:
    return ApiKey("a", b"", **limits)  # type: ignore[arg-type]


def test_a_minutes_allowance_is_refilled_continuously() -> None:
    clock = Clock()
    limits, one = RateLimits(clock), key(requests_per_minute=3)
    for _ in range(3):
        limits.take(one, "requests", 1)
    with pytest.raises(RateLimited, match="3 requests per minute") as caught:
        limits.take(one, "requests", 1)
    assert caught.value.headers() == {"Retry-After": "20", "retry-after-ms": "20000"}
    assert caught.value.status == 429
    clock.now += 19.9
    with pytest.raises(RateLimited):
        limits.take(one, "requests", 1)
    clock.now += 0.1
    limits.take(one, "requests", 1)  # a client that waits as long as it was told is served
    clock.now += 3600
    for _ in range(3):
        limits.take(one, "requests", 1)
    with pytest.raises(RateLimited):  # an idle hour is worth no more than a minute
        limits.take(one, "requests", 1)


def test_output_tokens_are_charged_as_they_come_and_their_debt_delays_the_next_request() -> None:
    clock = Clock()
    limits, one = RateLimits(clock), key(tokens_per_minute=600)
    limits.take(one, "tokens", 100)
    limits.charge(one, 800)  # 300 below zero: a request that runs is not cut off
    assert limits.headers(one)["x-ratelimit-remaining-tokens"] == "0"
    with pytest.raises(RateLimited) as caught:
        limits.take(one, "tokens", 50)
    assert caught.value.headers()["Retry-After"] == "35"
    clock.now += 35
    limits.take(one, "tokens", 50)


def test_a_prompt_above_the_limit_is_served_by_a_full_bucket() -> None:
    clock = Clock()
    limits, one = RateLimits(clock), key(tokens_per_minute=60)
    limits.take(one, "tokens", 150)
    with pytest.raises(RateLimited) as caught:
        limits.take(one, "tokens", 150)
    assert caught.value.headers()["Retry-After"] == "150"
    clock.now += 150
    limits.take(one, "tokens", 150)


def test_a_refund_never_exceeds_the_allowance() -> None:
    limits, one = RateLimits(Clock()), key(tokens_per_minute=60)
    limits.take(one, "tokens", 10)
    limits.charge(one, -10)
    limits.charge(one, -10)
    assert limits.headers(one)["x-ratelimit-remaining-tokens"] == "60"


def test_headers_are_openais_and_only_for_limits_that_exist() -> None:
    limits = RateLimits(Clock())
    assert limits.headers(key()) == {}
    both = key(requests_per_minute=10, tokens_per_minute=6000)
    limits.take(both, "requests", 1)
    limits.take(both, "tokens", 12)
    assert limits.headers(both) == {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "9",
        "x-ratelimit-reset-requests": "6s",
        "x-ratelimit-limit-tokens": "6000",
        "x-ratelimit-remaining-tokens": "5988",
        "x-ratelimit-reset-tokens": "120ms",
    }


def test_a_changed_limit_applies_at_once_and_keeps_what_was_used() -> None:
    limits = RateLimits(Clock())
    limits.take(key(tokens_per_minute=100), "tokens", 60)
    assert limits.headers(key(tokens_per_minute=1000))["x-ratelimit-remaining-tokens"] == "40"
    assert limits.headers(key(tokens_per_minute=10))["x-ratelimit-remaining-tokens"] == "10"


def test_buckets_of_removed_tenants_are_dropped() -> None:
    limits, one = RateLimits(Clock()), key(requests_per_minute=1)
    limits.take(one, "requests", 1)
    limits.keep({"a"})
    with pytest.raises(RateLimited):
        limits.take(one, "requests", 1)
    limits.keep({"b"})
    limits.take(one, "requests", 1)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (0.0001, "1ms"), (0.12, "120ms"), (1.5, "1.5s"), (59, "59s"), (360, "6m0s")]
)
def test_durations_are_written_as_openai_does(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@given(st.lists(st.tuples(st.floats(0, 90), st.integers(1, 40)), max_size=40), st.integers(1, 100))
def test_no_span_admits_more_than_the_bucket_and_its_refill(steps: list[tuple[float, int]], rate: int) -> None:
    """Any number of tokens may be asked for; one that exceeds the bucket passes only if the bucket is full."""
    clock = Clock()
    limits, one = RateLimits(clock), key(tokens_per_minute=rate)
    taken = 0
    for wait, amount in steps:
        clock.now += wait
        try:
            limits.take(one, "tokens", amount)
        except RateLimited:
            continue
        taken += amount
        assert taken <= rate + rate * (clock.now - 1000) / 60 + max(0, amount - rate) + 1e-6

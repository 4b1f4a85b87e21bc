"""Rate limits per tenant as token buckets: requests per minute, and tokens per minute.

A bucket holds one minute's allowance and is refilled continuously, as at OpenAI and Anthropic. Prompt tokens are taken
at admission, cached ones too (OpenAI does, Anthropic exempts them). Output tokens are taken as they are produced
(Anthropic; OpenAI reserves max_tokens at admission instead), so the bucket may go below zero: the tenant's next request
then waits until the debt is refilled. Each process counts on its own, as with Envoy's local rate limit; of several gateways
each grants its share, which is exact for a tenant whose connections are spread evenly over them, and is told what the others
leave (`set_level`).
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, Literal

from sluice.auth.key_file import ApiKey
from sluice.httpapi.errors import RateLimited

SECONDS: Final = 60.0
Unit = Literal["requests", "tokens"]
UNITS: Final[tuple[Unit, ...]] = ("requests", "tokens")


@dataclass(slots=True)
class TokenBucket:
    """A bucket of `capacity` tokens, which is refilled within a minute. `level` may be negative; times in seconds."""

    capacity: float
    level: float
    refilled_at: float

    def refill(self, now: float) -> None:
        """Adds what was refilled until `now`."""
        gained = max(now - self.refilled_at, 0.0) * self.capacity / SECONDS
        self.level, self.refilled_at = min(self.capacity, self.level + gained), now

    def wait_for(self, amount: float) -> float:
        """Seconds until the bucket holds `amount`, or is full if that is more than it can hold."""
        return max(0.0, min(amount, self.capacity) - self.level) * SECONDS / self.capacity


class RateLimits:
    """The buckets of all tenants that have been seen. One event loop uses it."""

    def __init__(self, clock: Callable[[], float], share: float = 1.0) -> None:
        """`share`: of each tenant's rates that is granted here; a change applies to the next request."""
        self._clock = clock
        self.share = share
        self.on_taken: Callable[[ApiKey, Unit, int], None] = lambda *_: None  # told of what `take` has taken
        self.on_charged: Callable[[ApiKey, int], None] = lambda *_: None  # told of what `charge` has
        # What all gateways together have left; None where that is not known.
        self.whole: Callable[[ApiKey, Unit], TokenBucket | None] = lambda *_: None
        self._buckets: dict[tuple[str, Unit], TokenBucket] = {}

    def take(self, key: ApiKey, unit: Unit, amount: int) -> None:
        """Takes `amount` at once. Raises RateLimited if the bucket does not hold it; a full bucket holds any amount."""
        bucket = self._bucket(key, unit)
        if bucket is None:
            return
        wait = bucket.wait_for(amount)
        if wait > 0:
            raise RateLimited(
                f"The key {key.name!r} has a limit of {bucket.capacity / self.share:.0f} {unit} per minute; this request needs {amount}. "
                f"Send it again in {math.ceil(wait)} s.",
                unit,
                retry_after=wait,
            )
        bucket.level -= amount
        self.on_taken(key, unit, amount)

    def charge(self, key: ApiKey, amount: int) -> None:
        """Takes tokens that were produced, below zero if need be; a negative amount is a refund."""
        bucket = self._bucket(key, "tokens")
        if bucket is not None:
            bucket.level = min(bucket.level - amount, bucket.capacity)
            self.on_charged(key, amount)

    def set_level(self, key: ApiKey, unit: Unit, level: float) -> None:
        """The bucket holds so much from now on: what other gateways have taken counts too."""
        bucket = self._bucket(key, unit)
        if bucket is not None:
            bucket.level = min(level, bucket.capacity)

    def headers(self, key: ApiKey) -> dict[str, str]:
        """Returns OpenAI's headers for the limits that the key has. `reset` is the time until the bucket is full.

        They are of the whole rate, also where gateways share it. Nothing remains where the next request would be refused.
        """
        found = {}
        for unit in UNITS:
            bucket = self._bucket(key, unit)
            if bucket is not None:
                whole = self.whole(key, unit)
                left = bucket.level / self.share if whole is None else whole.level
                remaining = 0 if bucket.wait_for(1) else max(0, math.floor(left))
                full = whole or bucket
                found[f"x-ratelimit-limit-{unit}"] = f"{bucket.capacity / self.share:.0f}"
                found[f"x-ratelimit-remaining-{unit}"] = str(remaining)
                found[f"x-ratelimit-reset-{unit}"] = duration(full.wait_for(full.capacity))
        return found

    def keep(self, tenants: Collection[str]) -> None:
        """Drops the buckets of all other tenants."""
        self._buckets = {place: bucket for place, bucket in self._buckets.items() if place[0] in tenants}

    def _bucket(self, key: ApiKey, unit: Unit) -> TokenBucket | None:
        """The tenant's bucket, refilled until now; None without a limit. A changed limit keeps at most its new capacity."""
        limit = limit_of(key, unit)
        if limit is None:
            return None
        rate = limit * self.share
        now = self._clock()
        bucket = self._buckets.get((key.name, unit))
        if bucket is None:
            bucket = self._buckets[key.name, unit] = TokenBucket(rate, rate, now)
        bucket.refill(now)
        if bucket.capacity != rate:
            bucket.capacity, bucket.level = rate, min(bucket.level, rate)
        return bucket


def limit_of(key: ApiKey, unit: Unit) -> int | None:
    """The key's limit per minute; None without one."""
    return key.requests_per_minute if unit == "requests" else key.tokens_per_minute


def duration(seconds: float) -> str:
    """Returns a duration as OpenAI writes it: "0s", "120ms", "1.5s", "6m0s"."""
    milliseconds = math.ceil(seconds * 1000)
    if 0 < milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes}m{rest / 1000:g}s" if minutes else f"{rest / 1000:g}s"

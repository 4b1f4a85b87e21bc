"""What is left of each tenant's rates in the whole fleet, by what each gateway says that it has used.

A gateway that only knows its share of a rate refuses most requests of a client whose connections all lead to it. So the
gateways read each other's documents, and each may take its share of what is left, not of the rate, or one more request:

    left ← left + refill − use here − use at the others        level here = max(share · left, min(left, one request))

The shares add up to one, so the gateways together take little more than what is left before they read it. What they took
together beyond it is a debt, which delays later requests and changes no sum over minutes. Between two readings the level is
refilled at the share of the rate: a gateway that cannot read the others grants its share.
"""

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sluice.auth.key_file import ApiKey
from sluice.auth.rate_limits import UNITS, RateLimits, TokenBucket, Unit, limit_of

RECENT_SECONDS: Final = 3.0  # a document names what was used within; twice the rows cost a reader twice the time

Place = tuple[str, Unit]  # tenant and unit


class BadDocument(ValueError):
    """What another gateway has sent is no document of uses."""


@dataclass(slots=True)
class _Use:
    left: TokenBucket  # of the fleet
    used: float = 0.0  # here, since the start
    one: float = 0.0  # what the last request took at its admission
    at: float = -math.inf  # the last use here
    is_full: bool = False  # at the last reading


class FleetRates:
    """One gateway's view of the fleet's use, and the levels of its own buckets by it."""

    def __init__(self, rates: RateLimits, named: Callable[[str], ApiKey | None], clock: Callable[[], float]) -> None:
        """`named` finds the key of a tenant; None for one that the key file does not have."""
        self._rates = rates
        self._named = named
        self._clock = clock
        self._uses: dict[Place, _Use] = {}
        self._read: dict[str, dict[Place, float]] = {}  # the others' sums as last read, by their start
        self._start = uuid.uuid4().hex
        rates.on_taken, rates.on_charged, rates.whole = self._taken, self._charged, self._whole

    def document(self) -> dict[str, Any]:
        """What was used here of late: {"start", "uses": [[tenant, unit, sum since the start, left in the fleet]]}."""
        now = self._clock()
        recent = [(place, use) for place, use in self._uses.items() if now - use.at <= RECENT_SECONDS]
        return {"start": self._start, "uses": [[*place, use.used, self._left(use, now)] for place, use in recent]}

    def learn(self, documents: Sequence[Any]) -> None:
        """The documents of all other gateways, read now. Raises BadDocument for one that is none; then nothing is learned."""
        read = [parsed(document) for document in documents]
        self._read = {start: self._read.get(start, {}) for start, _ in read}
        for start, uses in read:
            for place, (used, left) in uses.items():
                self._take(self._read[start], place, used, left)
        now = self._clock()
        for (tenant, unit), use in list(self._uses.items()):
            key = self._named(tenant)
            if key is None or limit_of(key, unit) is None:
                del self._uses[tenant, unit]
            else:
                self._set_level(key, unit, use, now)

    def _set_level(self, key: ApiKey, unit: Unit, use: _Use, now: float) -> None:
        left = self._left(use, now)
        if left < use.left.capacity or not use.is_full:  # most tenants are idle
            self._rates.set_level(key, unit, max(self._rates.share * left, min(left, use.one)))
        use.is_full = left >= use.left.capacity

    def _take(self, known: dict[Place, float], place: Place, used: float, left: float) -> None:
        """Subtract what another gateway has used. One that is seen for the first time tells what it has left."""
        key = self._named(place[0])
        use = None if key is None else self._use(key, place[1])
        if use is None:
            return
        if place in known:
            use.left.level = min(use.left.level - used + known[place], use.left.capacity)
        else:
            use.left.level = min(use.left.level, left)
        known[place] = used

    def _taken(self, key: ApiKey, unit: Unit, amount: int) -> None:
        use = self._count(key, unit, amount)
        if use is not None:
            use.one = amount

    def _charged(self, key: ApiKey, amount: int) -> None:
        self._count(key, "tokens", amount)

    def _count(self, key: ApiKey, unit: Unit, amount: int) -> _Use | None:
        use = self._use(key, unit)
        if use is not None:
            use.left.level = min(use.left.level - amount, use.left.capacity)
            use.used += amount
            use.at = self._clock()
        return use

    def _use(self, key: ApiKey, unit: Unit) -> _Use | None:
        """The tenant's use, what is left refilled until now; None without a limit."""
        limit, now = limit_of(key, unit), self._clock()
        if limit is None:
            return None
        use = self._uses.get((key.name, unit))
        if use is None:
            use = self._uses[key.name, unit] = _Use(TokenBucket(limit, limit, now))
        use.left.capacity = limit
        use.left.refill(now)
        return use

    def _whole(self, key: ApiKey, unit: Unit) -> TokenBucket | None:
        """What all gateways have left; None while the others have not been read."""
        use = self._use(key, unit) if self._read else None
        return None if use is None else use.left

    @staticmethod
    def _left(use: _Use, now: float) -> float:
        use.left.refill(now)
        return use.left.level


def parsed(document: Any) -> tuple[str, Mapping[Place, tuple[float, float]]]:
    """The start and the sums of a document. Raises BadDocument."""
    try:
        uses = {(tenant, unit): (used, left) for tenant, unit, used, left in document["uses"]}
        start = document["start"]
    except (TypeError, KeyError, ValueError) as error:
        raise BadDocument("it is no list of uses") from error
    numbers = [number for pair in uses.values() for number in pair]
    if not all(type(number) in (int, float) and math.isfinite(number) for number in numbers):
        raise BadDocument("a number is missing or not finite")
    if not isinstance(start, str) or not all(isinstance(tenant, str) and unit in UNITS for tenant, unit in uses):
        raise BadDocument("a name is missing")
    return start, uses

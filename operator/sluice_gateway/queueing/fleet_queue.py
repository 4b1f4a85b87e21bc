"""The queue of one model's fleet: which request starts next, and which are rejected.

Order: the highest priority; in it requests that have waited for `aging_seconds`, oldest first; then the earliest deadline;
then, of requests without one, those of the tenant with the lowest virtual counter, oldest first. A full queue rejects the
newest request of the lowest priority, which may be the one that arrives. A request that comes back from a replica keeps the
time of its arrival, and with it its place.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import takewhile
from math import inf
from typing import Final

from sluice_gateway.queueing.fair_share import VirtualCounters
from sluice_gateway.queueing.start_rate import StartRate
from sluice_gateway.queueing.values import QueueLimits, Reason, Rejected, Waiting

LEAST_RETRY: Final = 1.0  # seconds


class _Level:
    """The waiting requests of one priority in the order of their arrival, and the same by tenant and with a deadline."""

    def __init__(self) -> None:
        self.all: dict[int, Waiting] = {}
        self.due: dict[int, Waiting] = {}  # those with a deadline
        self.tenants: dict[str, dict[int, Waiting]] = {}

    def add(self, item: Waiting) -> None:
        _insert(self.all, item)
        if item.deadline < inf:
            self.due[item.number] = item
        _insert(self.tenants.setdefault(item.tenant, {}), item)

    def remove(self, item: Waiting) -> None:
        del self.all[item.number]
        self.due.pop(item.number, None)
        mine = self.tenants[item.tenant]
        del mine[item.number]
        if not mine:
            del self.tenants[item.tenant]


def _insert(items: dict[int, Waiting], item: Waiting) -> None:
    """Keeps the order of arrival, in which only a request that comes back is not the last."""
    last = next(reversed(items.values()), None)
    items[item.number] = item
    if last is not None and item.arrived_at < last.arrived_at:
        ordered = sorted(items.values(), key=lambda one: one.arrived_at)
        items.clear()
        items.update((one.number, one) for one in ordered)


class FleetQueue:
    """Waiting requests by number. All times in seconds of one clock."""

    def __init__(self, limits: QueueLimits) -> None:
        self._limits = limits
        self._items: dict[int, Waiting] = {}
        self._levels: dict[int, _Level] = {}
        self._tenants: dict[str, int] = {}  # waiting requests of each
        self._counters = VirtualCounters()
        self._rate = StartRate()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def by_priority(self) -> Mapping[int, int]:
        """Waiting requests of each priority that has some."""
        return {priority: len(level.all) for priority, level in self._levels.items()}

    def offer(self, item: Waiting, now: float) -> dict[int, Rejected]:
        """A request arrives. Returns the numbers that are rejected for it; its own is among them if it is not kept."""
        if item.size > self._limits.bytes:
            return {item.number: self._rejected("queue_bytes_full", now)}
        if self._wait_of(item, now) > self._limits.wait_seconds:
            return {item.number: self._rejected("wait_too_long", now)}
        room = self._room_for(item)
        if room is None:
            full: Reason = "queue_full" if len(self._items) >= self._limits.requests else "queue_bytes_full"
            return {item.number: self._rejected(full, now)}
        for other in room:
            self._remove(other)
        self._add(item)
        return {other.number: self._rejected("displaced", now) for other in room}

    def pop(self, now: float) -> Waiting | None:
        """The request that starts now; None if none waits."""
        item = self.peek(now)
        if item is not None:
            self.start(item, now)
        return item

    def peek(self, now: float, passed_over: Collection[int] = ()) -> Waiting | None:
        """The request that starts next among those that are not passed over; None without any."""
        for priority in sorted(self._levels, reverse=True):
            item = self._next(self._levels[priority], now, passed_over)
            if item is not None:
                return item
        return None

    def start(self, item: Waiting, now: float) -> None:
        """A waiting request starts now."""
        self._counters.serve(item.tenant, item.work, item.weight)
        self._remove(item)
        self._rate.started(now)
        if not self._items:
            self._rate.idle()

    def leave(self, number: int) -> None:
        """A request leaves without a start, such as that of a client that has disconnected. Idempotent."""
        item = self._items.get(number)
        if item is not None:
            self._remove(item)
            if not self._items:
                self._rate.idle()

    def predicted_wait(self, priority: int, now: float) -> float:
        """Predicted seconds until a request of this priority that arrives now starts."""
        return self._wait_of(Waiting(-1, priority=priority, arrived_at=inf), now)

    def _wait_of(self, item: Waiting, now: float) -> float:
        ahead = sum(len(level.all) for priority, level in self._levels.items() if priority > item.priority)
        if (equals := self._levels.get(item.priority)) is not None:
            ahead += len(equals.all) - sum(1 for _ in _later(equals, item))
        return self._rate.seconds(ahead + 1, now)

    def _rejected(self, reason: Reason, now: float) -> Rejected:
        """With its predicted time: when the wait is within its bound again, or those that wait now have started."""
        seconds = self._rate.seconds(len(self._items), now)
        if reason == "wait_too_long":
            seconds -= self._limits.wait_seconds
        return Rejected(reason, max(LEAST_RETRY, seconds))

    def _room_for(self, item: Waiting) -> list[Waiting] | None:
        """The requests of lower priority, or newer ones of its own, that make room for it, none if there is room; None if
        they do not suffice."""
        found: list[Waiting] = []
        count, size = len(self._items) + 1, self.bytes + item.size
        lower = self._lowest_first(item)
        while count > self._limits.requests or size > self._limits.bytes:
            other = next(lower, None)
            if other is None:
                return None
            found.append(other)
            count, size = count - 1, size - other.size
        return found

    def _lowest_first(self, item: Waiting) -> Iterator[Waiting]:
        """The requests that it precedes: the lowest priority first, in it the newest first."""
        for priority in sorted(self._levels):
            if priority < item.priority:
                yield from reversed(self._levels[priority].all.values())
            elif priority == item.priority:
                yield from _later(self._levels[priority], item)

    def _next(self, level: _Level, now: float, passed_over: Collection[int]) -> Waiting | None:
        oldest = _first(level.all, passed_over)
        if oldest is None or now - oldest.arrived_at >= self._limits.aging_seconds:
            return oldest
        due = [one for one in level.due.values() if one.number not in passed_over]
        if due:
            return min(due, key=lambda one: (one.deadline, one.arrived_at))
        heads = {tenant: _first(mine, passed_over) for tenant, mine in level.tenants.items()}
        return heads[self._counters.next_of([tenant for tenant, head in heads.items() if head is not None])]

    def _add(self, item: Waiting) -> None:
        if item.tenant not in self._tenants:
            self._counters.begins(item.tenant, self._tenants)
        self._tenants[item.tenant] = self._tenants.get(item.tenant, 0) + 1
        self._items[item.number] = item
        self._levels.setdefault(item.priority, _Level()).add(item)
        self.bytes += item.size

    def _remove(self, item: Waiting) -> None:
        del self._items[item.number]
        level = self._levels[item.priority]
        level.remove(item)
        if not level.all:
            del self._levels[item.priority]
        self.bytes -= item.size
        self._tenants[item.tenant] -= 1
        if not self._tenants[item.tenant]:
            del self._tenants[item.tenant]
            self._counters.ends(item.tenant, self._tenants)


def _first(items: Mapping[int, Waiting], passed_over: Collection[int]) -> Waiting | None:
    """The oldest request that is not passed over."""
    return next((item for item in items.values() if item.number not in passed_over), None)


def _later(level: _Level, item: Waiting) -> Iterator[Waiting]:
    """The requests of one priority that arrived after this one, the newest first."""
    return takewhile(lambda one: one.arrived_at > item.arrived_at, reversed(level.all.values()))

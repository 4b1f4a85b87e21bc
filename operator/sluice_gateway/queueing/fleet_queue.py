"""The queue of one model's fleet: which request starts next, and which are rejected.

Order: the highest priority; in it requests that have waited for `aging_seconds`, oldest first; then the earliest deadline;
then, of requests without one, those of the tenant with the lowest virtual counter, oldest first. A full queue rejects the
newest request of the lowest priority, which may be the one that arrives.
"""

from collections.abc import Iterator, Mapping
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
        self.all[item.number] = item
        if item.deadline < inf:
            self.due[item.number] = item
        self.tenants.setdefault(item.tenant, {})[item.number] = item

    def remove(self, item: Waiting) -> None:
        del self.all[item.number]
        self.due.pop(item.number, None)
        mine = self.tenants[item.tenant]
        del mine[item.number]
        if not mine:
            del self.tenants[item.tenant]


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
        if self.predicted_wait(item.priority, now) > self._limits.wait_seconds:
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
        if not self._items:
            return None
        item = self._next(now)
        self._counters.serve(item.tenant, item.work, item.weight)
        self._remove(item)
        self._rate.started(now)
        if not self._items:
            self._rate.idle()
        return item

    def peek(self, now: float) -> Waiting | None:
        """The request that `pop` would return."""
        return self._next(now) if self._items else None

    def leave(self, number: int) -> None:
        """A request leaves without a start, such as that of a client that has disconnected. Idempotent."""
        item = self._items.get(number)
        if item is not None:
            self._remove(item)
            if not self._items:
                self._rate.idle()

    def predicted_wait(self, priority: int, now: float) -> float:
        """Predicted seconds until a request of this priority that arrives now starts."""
        ahead = sum(len(level.all) for other, level in self._levels.items() if other >= priority)
        return self._rate.seconds(ahead + 1, now)

    def _rejected(self, reason: Reason, now: float) -> Rejected:
        """With its predicted time: when the wait is within its bound again, or those that wait now have started."""
        seconds = self._rate.seconds(len(self._items), now)
        if reason == "wait_too_long":
            seconds -= self._limits.wait_seconds
        return Rejected(reason, max(LEAST_RETRY, seconds))

    def _room_for(self, item: Waiting) -> list[Waiting] | None:
        """The requests of lower priority that make room for it, none if there is room; None if they do not suffice."""
        found: list[Waiting] = []
        count, size = len(self._items) + 1, self.bytes + item.size
        lower = self._lowest_first(item.priority)
        while count > self._limits.requests or size > self._limits.bytes:
            other = next(lower, None)
            if other is None:
                return None
            found.append(other)
            count, size = count - 1, size - other.size
        return found

    def _lowest_first(self, below: int) -> Iterator[Waiting]:
        """The requests of priorities below this one, the lowest priority first, in it the newest first."""
        for priority in sorted(priority for priority in self._levels if priority < below):
            yield from reversed(self._levels[priority].all.values())

    def _next(self, now: float) -> Waiting:
        level = self._levels[max(self._levels)]
        oldest = next(iter(level.all.values()))
        if now - oldest.arrived_at >= self._limits.aging_seconds:
            return oldest
        if level.due:
            return min(level.due.values(), key=lambda one: (one.deadline, one.arrived_at))
        return next(iter(level.tenants[self._counters.next_of(level.tenants)].values()))

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

"""Which waiting request is evicted for a more important one when the queue is full.

The lowest priority is evicted first; within it a request that cannot meet its deadline (`lateness`); then a request of
the tenant that is furthest over its share, by what it was served (`policies.tenants`) and what it has waiting, in
weighted tokens; of that tenant the latest. Priorities are not aged: ageing bounds the wait in the queue, which an
eviction ends. Only requests that have never run are candidates, so that no computed work is lost.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import Final

from sluice_engine.scheduler.policies.tenants import TenantCounters

_FEW: Final = 64  # entries that are out of date and not worth a sweep

Rank = tuple[int, bool]  # priority, and whether it can still be in time


class _Lanes:
    """Requests of one rank by tenant, and a heap of the tenants, the one furthest over its share first.

    Every tenant has an entry with its standing or more: `raised` has to be called when it grows. What is too high is
    corrected when it comes up.
    """

    def __init__(self, standing: Callable[[str], float]) -> None:
        self.weights: dict[str, OrderedDict[str, float]] = {}  # tenant → name → weight; nothing is empty
        self._standing = standing
        self._heap: list[tuple[float, int, str]] = []  # standing, negated; the tenant's serial; the tenant
        self._serials: dict[str, int] = {}  # by tenant: when its first request here came
        self._next = count()

    def add(self, name: str, tenant: str, weight: float) -> None:
        """One more request, the latest of its tenant. Follow with `raised`."""
        if tenant not in self.weights:
            self.weights[tenant] = OrderedDict()
            self._serials[tenant] = next(self._next)
        self.weights[tenant][name] = weight

    def pop(self, name: str, tenant: str) -> float | None:
        """Removes the request and returns its weight; None where it is not here."""
        names = self.weights.get(tenant)
        weight = None if names is None else names.pop(name, None)
        if names is not None and not names:
            del self.weights[tenant], self._serials[tenant]
        return weight

    def raised(self, tenant: str) -> None:
        """The tenant's standing may have grown. Amortised O(log tenants)."""
        if tenant not in self.weights:
            return
        if len(self._heap) > _FEW + 2 * len(self.weights):
            self._heap = [(-self._standing(each), serial, each) for each, serial in self._serials.items()]
            heapq.heapify(self._heap)
        heapq.heappush(self._heap, (-self._standing(tenant), self._serials[tenant], tenant))

    def furthest(self) -> str:
        """The tenant that is furthest over its share; of equals the one that is here for longest. There must be one."""
        while True:
            value, serial, tenant = self._heap[0]
            if self._serials.get(tenant) != serial:
                heapq.heappop(self._heap)
            elif -value > (standing := self._standing(tenant)):
                heapq.heapreplace(self._heap, (-standing, serial, tenant))
            else:
                return tenant


class EvictionCandidates:
    """Requests that wait and have never run, by what they weigh. Each operation is amortised O(ranks + log tenants), and
    so is each charge to a tenant that waits; priorities are 201 at most."""

    def __init__(self, counters: TenantCounters) -> None:
        self._counters = counters
        self._ranks: dict[Rank, _Lanes] = {}  # nothing is empty
        self._owed: dict[str, float] = {}  # weight that waits, by tenant; no tenant without any
        self._requests: dict[str, int] = {}  # by tenant, as `_owed`
        self._raised: set[str] = set()  # tenants that have more waiting than when one was chosen last

    def add(self, name: str, rank: Rank, tenant: str, weight: float) -> None:
        """One more request waits, later than all in here. `weight`: what serving it will be charged, estimated."""
        if rank not in self._ranks:
            self._ranks[rank] = _Lanes(self.standing)
        self._ranks[rank].add(name, tenant, weight)
        self._owed[tenant] = self._owed.get(tenant, 0.0) + weight
        self._requests[tenant] = self._requests.get(tenant, 0) + 1
        self._raised.add(tenant)

    def discard(self, name: str, rank: Rank, tenant: str) -> None:
        """Remove a request; a no-op where it is no candidate."""
        lanes = self._ranks.get(rank)
        weight = None if lanes is None else lanes.pop(name, tenant)
        if lanes is None or weight is None:
            return
        if not lanes.weights:
            del self._ranks[rank]
        self._owed[tenant] -= weight
        self._requests[tenant] -= 1
        if not self._requests[tenant]:
            del self._owed[tenant], self._requests[tenant]
            self._raised.discard(tenant)

    def demote(self, name: str, priority: int, tenant: str) -> None:
        """The request cannot meet its deadline any more; a no-op where it is no candidate."""
        lanes = self._ranks.get((priority, True))
        names = None if lanes is None else lanes.weights.get(tenant)
        weight = None if names is None else names.get(name)
        if weight is not None:
            self.discard(name, (priority, True), tenant)
            self.add(name, (priority, False), tenant, weight)

    def for_overdue(self, name: str, priority: int, newcomer: int) -> str | None:
        """The request to evict when `name` has been late for too long and a newcomer of that priority would overtake it: one
        of a lower priority, or the less important of the two; None where that is the newcomer."""
        lowest = min(self._ranks, default=(priority, False))
        if lowest[0] < min(priority, newcomer):
            return self._latest(lowest, self._furthest(lowest))
        return name if priority <= newcomer else None

    def for_newcomer(self, rank: Rank, tenant: str, weight: float) -> str | None:
        """The request to evict for a newcomer of this rank, tenant and weight; None where none is less important."""
        lowest = min(self._ranks, default=rank)
        if lowest > rank or not self._ranks:
            return None
        worst = self._furthest(lowest)
        if lowest == rank and self.standing(worst) <= self.standing(tenant) + weight:
            return None
        return self._latest(lowest, worst)

    def standing(self, tenant: str) -> float:
        """Weighted tokens that the tenant was served and has waiting."""
        return self._counters.standing(tenant) + self._owed.get(tenant, 0.0)

    def _furthest(self, rank: Rank) -> str:
        for tenant in self._raised | self._counters.take_charged():
            for lanes in self._ranks.values():
                lanes.raised(tenant)
        self._raised.clear()
        return self._ranks[rank].furthest()

    def _latest(self, rank: Rank, tenant: str) -> str:
        return next(reversed(self._ranks[rank].weights[tenant]))

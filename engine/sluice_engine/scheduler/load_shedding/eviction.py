"""Which waiting request is evicted for a more important one when the queue is full.

The lowest priority is evicted first; within it a request that cannot meet its deadline (`lateness`); then a request of
the tenant with the highest usage, which is its counter (`policies.tenants`) and the weight of its waiting requests, in
weighted tokens; of that tenant the latest. Priorities are not aged: ageing bounds the wait in the queue, which an
eviction ends. Only requests that have never run are candidates, so that no computed work is lost.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable
from itertools import count
from typing import Final

from sluice_engine.scheduler.policies.tenants import TenantCounters

_FEW: Final = 64  # outdated entries that are tolerated

Rank = tuple[int, bool]  # priority, and whether it can still be in time


class _TenantQueues:
    """Requests of one rank by tenant, and a heap of the tenants, the one with the highest usage first.

    The heap's value of a tenant is never below its usage, because `usage_raised` must be called when that grows. A value
    that is too high is corrected when it reaches the top.
    """

    def __init__(self, usage: Callable[[str], float]) -> None:
        self.weights: dict[str, OrderedDict[str, float]] = {}  # tenant → name → weight; nothing is empty
        self._usage = usage
        self._heap: list[tuple[float, int, str]] = []  # usage, negated; the tenant's serial; the tenant
        self._serials: dict[str, int] = {}  # by tenant: the order of their first requests here
        self._next = count()

    def add(self, name: str, tenant: str, weight: float) -> None:
        """One more request, the latest of its tenant. Follow with `usage_raised`."""
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

    def usage_raised(self, tenant: str) -> None:
        """The tenant's usage may have grown. Amortised O(log tenants)."""
        if tenant not in self.weights:
            return
        if len(self._heap) > _FEW + 2 * len(self.weights):
            self._heap = [(-self._usage(each), serial, each) for each, serial in self._serials.items()]
            heapq.heapify(self._heap)
        heapq.heappush(self._heap, (-self._usage(tenant), self._serials[tenant], tenant))

    def highest_usage(self) -> str:
        """The tenant with the highest usage; of equals the one whose request was added first. There must be one."""
        while True:
            value, serial, tenant = self._heap[0]
            if self._serials.get(tenant) != serial:
                heapq.heappop(self._heap)
            elif -value > (usage := self._usage(tenant)):
                heapq.heapreplace(self._heap, (-usage, serial, tenant))
            else:
                return tenant


class EvictionCandidates:
    """Waiting requests that have never run, with their weights. Each operation is amortised O(ranks + log tenants), and
    so is each charge to a tenant with waiting requests; priorities are 201 at most."""

    def __init__(self, counters: TenantCounters) -> None:
        self._counters = counters
        self._ranks: dict[Rank, _TenantQueues] = {}  # nothing is empty
        self._owed: dict[str, float] = {}  # weight of waiting requests, by tenant; no tenant without any
        self._requests: dict[str, int] = {}  # by tenant, as `_owed`
        self._raised: set[str] = set()  # tenants with more waiting weight than at the last choice

    def add(self, name: str, rank: Rank, tenant: str, weight: float) -> None:
        """Add a waiting request, the latest of all. `weight`: the estimated charge for serving it, in weighted tokens."""
        self._add(name, rank, tenant, weight / self._counters.weight_of(tenant))

    def _add(self, name: str, rank: Rank, tenant: str, weight: float) -> None:
        if rank not in self._ranks:
            self._ranks[rank] = _TenantQueues(self.usage)
        self._ranks[rank].add(name, tenant, weight)
        self._owed[tenant] = self._owed.get(tenant, 0.0) + weight
        self._requests[tenant] = self._requests.get(tenant, 0) + 1
        self._raised.add(tenant)

    def discard(self, name: str, rank: Rank, tenant: str) -> None:
        """Remove a request; a no-op where it is no candidate."""
        queues = self._ranks.get(rank)
        weight = None if queues is None else queues.pop(name, tenant)
        if queues is None or weight is None:
            return
        if not queues.weights:
            del self._ranks[rank]
        self._owed[tenant] -= weight
        self._requests[tenant] -= 1
        if not self._requests[tenant]:
            del self._owed[tenant], self._requests[tenant]
            self._raised.discard(tenant)

    def demote(self, name: str, priority: int, tenant: str) -> None:
        """The request cannot meet its deadline any more; a no-op where it is no candidate."""
        queues = self._ranks.get((priority, True))
        names = None if queues is None else queues.weights.get(tenant)
        weight = None if names is None else names.get(name)
        if weight is not None:
            self.discard(name, (priority, True), tenant)
            self._add(name, (priority, False), tenant, weight)

    def for_overdue(self, name: str, priority: int, newcomer: int) -> str | None:
        """The request to evict when `name` has been late for too long and a newcomer of that priority would overtake it: one
        of a lower priority, or the less important of the two; None where that is the newcomer."""
        lowest = min(self._ranks, default=(priority, False))
        if lowest[0] < min(priority, newcomer):
            return self._latest(lowest, self._highest_usage(lowest))
        return name if priority <= newcomer else None

    def for_newcomer(self, rank: Rank, tenant: str, weight: float) -> str | None:
        """The request to evict for a newcomer of this rank, tenant and weight; None where none is less important."""
        lowest = min(self._ranks, default=rank)
        if lowest > rank or not self._ranks:
            return None
        worst = self._highest_usage(lowest)
        if lowest == rank and self.usage(worst) <= self.usage(tenant) + weight / self._counters.weight_of(tenant):
            return None
        return self._latest(lowest, worst)

    def usage(self, tenant: str) -> float:
        """Weighted tokens that the tenant was served and has waiting, over its weight."""
        return self._counters.counter_on_arrival(tenant) + self._owed.get(tenant, 0.0)

    def _highest_usage(self, rank: Rank) -> str:
        for tenant in self._raised | self._counters.take_charged():
            for queues in self._ranks.values():
                queues.usage_raised(tenant)
        self._raised.clear()
        return self._ranks[rank].highest_usage()

    def _latest(self, rank: Rank, tenant: str) -> str:
        return next(reversed(self._ranks[rank].weights[tenant]))

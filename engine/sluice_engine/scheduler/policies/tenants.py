"""Virtual token counters: the service of each tenant in weighted tokens (Sheng et al., OSDI'24, algorithm 2).

A prompt token counts PROMPT_WEIGHT when its request begins to run, a generated one OUTPUT_WEIGHT when it is delivered.
A charge is divided by the tenant's weight, so that a tenant of weight 2 is served twice as much as one of weight 1.
A tenant that returns after a pause is lifted to the least counter among waiting tenants (or, where none waits, to that
of the last one that did), so that an idle time is no credit that starves the others.
"""

import heapq
from collections.abc import Callable, Mapping

PROMPT_WEIGHT = 1.0
OUTPUT_WEIGHT = 2.0
MAX_IDLE_COUNTERS = 1024  # counters kept of tenants without requests
_FEW_PAST = 64  # entries of past members that are tolerated


def unavoidable_gap(longest: int, pool: int) -> float:
    """Weighted tokens by which two waiting tenants may differ on one engine under any policy, with prompts of at most
    `longest` tokens and a cache of `pool`: max(w_p·L, w_q·M). Theorem 4.4 bounds the difference of their service by
    twice as much."""
    return max(PROMPT_WEIGHT * longest, OUTPUT_WEIGHT * pool)


class LeastServed:
    """A multiset of tenants, and which of them has the least counter. All operations are amortised O(log tenants)."""

    def __init__(self, served: Callable[[str], float]) -> None:
        """`served`: the counter of a tenant, which never falls while the tenant is a member."""
        self._served = served
        self._count: dict[str, int] = {}  # no zeros
        self._heap: list[tuple[float, str]] = []  # every member, with a counter that may be out of date; and past ones

    def add(self, tenant: str) -> None:
        """One more of this tenant."""
        self._count[tenant] = self._count.get(tenant, 0) + 1
        if self._count[tenant] > 1:
            return
        if len(self._heap) > _FEW_PAST + 2 * len(self._count):
            self._heap = [(self._served(each), each) for each in self._count]
            heapq.heapify(self._heap)
        else:
            heapq.heappush(self._heap, (self._served(tenant), tenant))

    def remove(self, tenant: str) -> None:
        """One less. Raises KeyError where there is none."""
        self._count[tenant] -= 1
        if not self._count[tenant]:
            del self._count[tenant]

    def least(self) -> str | None:
        """The member with the least counter; None without members."""
        while self._heap:
            value, tenant = self._heap[0]
            if tenant not in self._count:
                heapq.heappop(self._heap)
            elif value < self._served(tenant):
                heapq.heapreplace(self._heap, (self._served(tenant), tenant))
            else:
                return tenant
        return None


class TenantCounters:
    """Counters by tenant, and which of the waiting tenants has the least. All operations are amortised O(log tenants)."""

    def __init__(self) -> None:
        self._served: dict[str, float] = {}
        self._weights: Mapping[str, float] = {}  # of tenants whose weight is not 1
        self._waiting: dict[str, int] = {}  # waiting requests by tenant; no zeros
        self._heap: list[tuple[float, str]] = []  # every waiting tenant once, with a counter that may be out of date
        self._in_heap: set[str] = set()
        self._last_left = 0.0
        self._idle: list[tuple[float, str]] = []  # a heap of every tenant that is in `_served` only, as `_heap`
        self._in_idle: set[str] = set()
        self._charged: set[str] = set()  # waiting tenants charged since the last call of `take_charged`

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Replace the weights of tenants, each above 0; a tenant without one has weight 1. What was charged stays."""
        self._weights = dict(weights)

    def weight_of(self, tenant: str) -> float:
        """The tenant's share under contention, relative to the others."""
        return self._weights.get(tenant, 1.0)

    def served(self, tenant: str) -> float:
        """Weighted tokens over the tenant's weight, lifts included."""
        return self._served.get(tenant, 0.0)

    def counter_on_arrival(self, tenant: str) -> float:
        """The counter of the tenant if it queued a request now: lifted where it has none waiting."""
        if tenant in self._waiting:
            return self.served(tenant)
        least = self.least()
        return max(self.served(tenant), self._last_left if least is None else self.served(least))

    def charge(self, tenant: str, weighted_tokens: float) -> None:
        """Add to the counter of a tenant that was served."""
        if tenant not in self._served:
            self._rest(tenant)
        self._served[tenant] = self.served(tenant) + weighted_tokens / self.weight_of(tenant)
        if tenant in self._waiting:
            self._charged.add(tenant)

    def take_charged(self) -> set[str]:
        """Waiting tenants that were charged since the last call, whose counters have grown."""
        charged, self._charged = self._charged, set()
        return charged

    def arrive(self, tenant: str) -> None:
        """One waiting request of the tenant more."""
        if tenant in self._waiting:
            self._waiting[tenant] += 1
            return
        self._served[tenant] = served = self.counter_on_arrival(tenant)
        if tenant not in self._in_heap:
            self._in_heap.add(tenant)
            heapq.heappush(self._heap, (served, tenant))
        self._waiting[tenant] = 1

    def depart(self, tenant: str) -> None:
        """One waiting request of the tenant less."""
        if self._waiting[tenant] > 1:
            self._waiting[tenant] -= 1
            return
        del self._waiting[tenant]
        self._charged.discard(tenant)
        self._last_left = self.served(tenant)
        if not self._waiting:  # no tenant in the heap has waiting requests
            for idle in self._in_heap:
                self._rest(idle)
            self._heap.clear()
            self._in_heap.clear()
        self._forget()

    def least(self) -> str | None:
        """The waiting tenant with the least counter. Counters only grow, so an outdated one is renewed in time."""
        while self._heap:
            value, tenant = self._heap[0]
            if tenant not in self._waiting:
                heapq.heappop(self._heap)
                self._in_heap.discard(tenant)
                self._rest(tenant)
            elif value < self._served[tenant]:
                heapq.heapreplace(self._heap, (self._served[tenant], tenant))
            else:
                return tenant
        return None

    def _rest(self, tenant: str) -> None:
        """The tenant has no waiting request: its counter may be dropped."""
        if tenant not in self._in_idle:
            self._in_idle.add(tenant)
            heapq.heappush(self._idle, (self.served(tenant), tenant))

    def _forget(self) -> None:
        """Drop the least idle counters first: their tenants would be lifted on return anyway."""
        if len(self._served) - len(self._waiting) <= 2 * MAX_IDLE_COUNTERS:
            return
        while len(self._served) - len(self._in_heap) > MAX_IDLE_COUNTERS:  # each waiting tenant is in the heap
            value, tenant = heapq.heappop(self._idle)
            if tenant not in self._in_heap and value < self._served[tenant]:
                heapq.heappush(self._idle, (self._served[tenant], tenant))
                continue
            self._in_idle.discard(tenant)
            if tenant not in self._in_heap:
                del self._served[tenant]

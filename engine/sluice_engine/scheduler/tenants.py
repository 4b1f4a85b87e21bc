"""Virtual token counters: what each tenant was served, in weighted tokens (Sheng et al., OSDI'24, algorithm 2).

A prompt token counts PROMPT_WEIGHT when its request begins to run, a generated one OUTPUT_WEIGHT when it is delivered.
A tenant that returns after a pause is lifted to the least counter among those who wait (or, where nobody waits, to
that of the last who did), so that absence is no credit and nobody can be shut out by one who saved up.
"""

import heapq

PROMPT_WEIGHT = 1.0
OUTPUT_WEIGHT = 2.0
IDLE_KEPT = 1024  # tenants remembered while they have nothing here


def unavoidable_gap(longest: int, pool: int) -> float:
    """Weighted tokens by which two tenants who both wait may differ on one engine whoever is served next, prompts having
    `longest` tokens at most and the cache `pool`: max(w_p·L, w_q·M). Their theorem keeps the difference of what they
    were served within twice as much."""
    return max(PROMPT_WEIGHT * longest, OUTPUT_WEIGHT * pool)


class TenantCounters:
    """Counters by tenant, and which of the waiting tenants has the least. All operations are O(log tenants)."""

    def __init__(self) -> None:
        self._served: dict[str, float] = {}
        self._waiting: dict[str, int] = {}  # requests that wait, by tenant; no zeros
        self._heap: list[tuple[float, str]] = []  # every waiting tenant once, with a counter that may be out of date
        self._in_heap: set[str] = set()
        self._last_left = 0.0

    def served(self, tenant: str) -> float:
        """Weighted tokens, lifts included."""
        return self._served.get(tenant, 0.0)

    def standing(self, tenant: str) -> float:
        """Its counter if a request of it came now: lifted where nothing of it waits."""
        if tenant in self._waiting:
            return self.served(tenant)
        least = self.least()
        return max(self.served(tenant), self._last_left if least is None else self.served(least))

    def charge(self, tenant: str, weighted_tokens: float) -> None:
        """The tenant was served."""
        self._served[tenant] = self.served(tenant) + weighted_tokens

    def arrive(self, tenant: str) -> None:
        """One more request of the tenant waits."""
        if tenant in self._waiting:
            self._waiting[tenant] += 1
            return
        self._served[tenant] = served = self.standing(tenant)
        if tenant not in self._in_heap:
            self._in_heap.add(tenant)
            heapq.heappush(self._heap, (served, tenant))
        self._waiting[tenant] = 1

    def depart(self, tenant: str) -> None:
        """One of its waiting requests runs or is gone."""
        if self._waiting[tenant] > 1:
            self._waiting[tenant] -= 1
            return
        del self._waiting[tenant]
        self._last_left = self.served(tenant)
        if not self._waiting:  # what is left in the heap is nobody's
            self._heap.clear()
            self._in_heap.clear()
        self._forget()

    def least(self) -> str | None:
        """The waiting tenant with the least counter. Counters only grow, so an outdated one is looked at in time."""
        while self._heap:
            value, tenant = self._heap[0]
            if tenant not in self._waiting:
                heapq.heappop(self._heap)
                self._in_heap.discard(tenant)
            elif value < self._served[tenant]:
                heapq.heapreplace(self._heap, (self._served[tenant], tenant))
            else:
                return tenant
        return None

    def _forget(self) -> None:
        """The least of the idle counters go first: their owners would be lifted on return anyway."""
        if len(self._served) - len(self._waiting) <= 2 * IDLE_KEPT:
            return
        busy = self._waiting.keys() | self._in_heap
        idle = [(served, tenant) for tenant, served in self._served.items() if tenant not in busy]
        for _, tenant in heapq.nsmallest(len(idle) - IDLE_KEPT, idle):
            del self._served[tenant]

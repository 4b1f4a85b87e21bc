"""Who makes way when more important work finds the queue full.

The lowest priority goes first; within it who cannot be in time any more (`lateness.py`); then a request of the tenant that is furthest over its share, by what it was
served (`tenants.py`) and what it has waiting, in weighted tokens; of that tenant the latest. Priorities count as they
were given: ageing keeps the queue from letting somebody wait for ever, and whoever is refused waits no longer. Only
requests that have never run are in here: work that was done is never thrown away for work that was not.
"""

from sluice_engine.scheduler.tenants import TenantCounters

Rank = tuple[int, bool]  # priority, and whether it can still be in time


class Displaceable:
    """Requests that wait and have never run, by what they weigh. O(1), and O(tenants of the lowest priority) to choose."""

    def __init__(self, counters: TenantCounters) -> None:
        self._counters = counters
        self._ranks: dict[Rank, dict[str, dict[str, float]]] = {}  # rank → tenant → name → weight; nothing is empty
        self._owed: dict[str, float] = {}  # weight that waits, by tenant; no tenant without any

    def add(self, name: str, rank: Rank, tenant: str, weight: float) -> None:
        """One more request waits, later than all in here. `weight`: what serving it will be charged, estimated."""
        self._ranks.setdefault(rank, {}).setdefault(tenant, {})[name] = weight
        self._owed[tenant] = self._owed.get(tenant, 0.0) + weight

    def discard(self, name: str, rank: Rank, tenant: str) -> None:
        """The request waits no longer; nothing happens where it was never in here."""
        tenants = self._ranks.get(rank, {})
        names = tenants.get(tenant, {})
        weight = names.pop(name, None)
        if weight is None:
            return
        self._owed[tenant] -= weight
        if names:
            return
        del tenants[tenant]
        if not tenants:
            del self._ranks[rank]
        for others in self._ranks.values():
            if tenant in others:
                return
        del self._owed[tenant]

    def give_up(self, name: str, priority: int, tenant: str) -> None:
        """The request cannot be in time any more; nothing happens where it is not in here."""
        weight = self._ranks.get((priority, True), {}).get(tenant, {}).get(name)
        if weight is not None:
            self.discard(name, (priority, True), tenant)
            self.add(name, (priority, False), tenant, weight)

    def outstaying(self, name: str, priority: int, newcomer: int) -> str | None:
        """Who leaves when this one has been late for too long and a newcomer of that priority would overtake it: one
        that waits with a lower priority, or the less important of the two; None where that is the newcomer."""
        lowest = min(self._ranks, default=(priority, False))
        if lowest[0] < min(priority, newcomer):
            tenants = self._ranks[lowest]
            return next(reversed(tenants[max(tenants, key=self.standing)]))
        return name if priority <= newcomer else None

    def giving_way(self, rank: Rank, tenant: str, weight: float) -> str | None:
        """Who leaves for a newcomer of this rank, tenant and weight; None where nobody here is less important."""
        lowest = min(self._ranks, default=rank)
        if lowest > rank or not self._ranks:
            return None
        tenants = self._ranks[lowest]
        worst = max(tenants, key=self.standing)
        if lowest == rank and self.standing(worst) <= self.standing(tenant) + weight:
            return None
        return next(reversed(tenants[worst]))

    def standing(self, tenant: str) -> float:
        """Weighted tokens that the tenant has had and is waiting for."""
        return self._counters.standing(tenant) + self._owed.get(tenant, 0.0)

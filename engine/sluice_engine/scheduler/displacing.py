"""Who makes way when more important work finds the queue full.

The lowest priority goes first; within it a request of the tenant that is furthest over its share, by what it was
served (`tenants.py`) and what it has waiting, in weighted tokens; of that tenant the latest. Priorities count as they
were given: ageing keeps the queue from letting somebody wait for ever, and whoever is refused waits no longer. Only
requests that have never run are in here: work that was done is never thrown away for work that was not.
"""

from sluice_engine.scheduler.tenants import TenantCounters


class Displaceable:
    """Requests that wait and have never run, by what they weigh. O(1), and O(tenants of the lowest priority) to choose."""

    def __init__(self, counters: TenantCounters) -> None:
        self._counters = counters
        self._ranks: dict[int, dict[str, dict[str, float]]] = {}  # priority → tenant → name → weight; nothing is empty
        self._owed: dict[str, float] = {}  # weight that waits, by tenant; no tenant without any

    def add(self, name: str, priority: int, tenant: str, weight: float) -> None:
        """One more request waits, later than all in here. `weight`: what serving it will be charged, estimated."""
        self._ranks.setdefault(priority, {}).setdefault(tenant, {})[name] = weight
        self._owed[tenant] = self._owed.get(tenant, 0.0) + weight

    def discard(self, name: str, priority: int, tenant: str) -> None:
        """The request waits no longer; nothing happens where it was never in here."""
        tenants = self._ranks.get(priority, {})
        names = tenants.get(tenant, {})
        weight = names.pop(name, None)
        if weight is None:
            return
        self._owed[tenant] -= weight
        if names:
            return
        del tenants[tenant]
        if not tenants:
            del self._ranks[priority]
        if not any(tenant in others for others in self._ranks.values()):
            del self._owed[tenant]

    def giving_way(self, priority: int, tenant: str, weight: float) -> str | None:
        """Who leaves for a newcomer of this priority, tenant and weight; None where nobody here is less important."""
        lowest = min(self._ranks, default=priority)
        if lowest > priority or not self._ranks:
            return None
        tenants = self._ranks[lowest]
        worst = max(tenants, key=self._standing)
        if lowest == priority and self._standing(worst) <= self._standing(tenant) + weight:
            return None
        return next(reversed(tenants[worst]))

    def _standing(self, tenant: str) -> float:
        """Weighted tokens that the tenant has had and is waiting for."""
        return self._counters.standing(tenant) + self._owed.get(tenant, 0.0)

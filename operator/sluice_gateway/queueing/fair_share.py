"""Fair shares of tenants by virtual token counters (Sheng et al., Fairness in Serving Large Language Models, OSDI 2024).

A tenant's counter is the service that it has received, divided by its weight; the waiting tenant with the lowest counter is
served next. A tenant that begins to wait again is lifted to the lowest counter of those that wait, so that no tenant saves up
service while idle.
"""

from collections.abc import Collection


class VirtualCounters:
    """The counters of the tenants that wait, and of none other once they are behind: memory follows the queue."""

    def __init__(self) -> None:
        self._counters: dict[str, float] = {}
        self._floor = 0.0  # the highest counter from which service was given

    def begins(self, tenant: str, waiting: Collection[str]) -> None:
        """The tenant has no other request in the queue, in which the tenants `waiting` have some."""
        lowest = min((self._counters[other] for other in waiting), default=self._floor)
        self._counters[tenant] = max(self._counters.get(tenant, lowest), lowest)

    def next_of(self, waiting: Collection[str]) -> str:
        """The tenant to serve next."""
        return min(waiting, key=lambda tenant: (self._counters[tenant], tenant))

    def serve(self, tenant: str, work: float, weight: float) -> None:
        """The tenant receives work."""
        self._floor = max(self._floor, self._counters[tenant])
        self._counters[tenant] += work / weight

    def ends(self, tenant: str, waiting: Collection[str]) -> None:
        """The tenant has no request in the queue any more. Counters that a return would lift anyway are dropped."""
        lowest = min((self._counters[other] for other in waiting), default=self._floor)
        for name in [name for name, counter in self._counters.items() if name not in waiting and counter <= lowest]:
            del self._counters[name]

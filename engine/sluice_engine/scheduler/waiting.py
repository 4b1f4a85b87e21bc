"""The queue in policy order. A step looks at its head only, so 10,000 waiting requests cost it nothing.

One heap (`fair`: one per tenant). A request that leaves from the middle stays in the heap as a husk until it comes up
or until husks are the majority.
"""

import heapq
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from sluice_engine.request import Request
from sluice_engine.scheduler.displacing import Displaceable
from sluice_engine.scheduler.policies import Outlook, Policy
from sluice_engine.scheduler.tenants import TenantCounters

_FEW_HUSKS = 64


class Entry(NamedTuple):
    """A place in a heap. Compared up to `serial`, which is unique."""

    number: float
    served: float  # the tenant's counter on arrival: the tie-break
    order: int
    serial: int
    renewed: bool
    tokens: int  # prompt tokens to compute, as of its arrival
    request: Request


class WaitingQueue:
    """Requests that wait, first the one that the policy serves next."""

    def __init__(self, policy: Policy, counters: TenantCounters) -> None:
        self.policy = policy
        self.tokens = 0  # known tokens of all that wait
        self.prefill_tokens = 0  # those of them that are not cached, as of arrival
        self.displaceable = Displaceable(counters)
        self._counters = counters
        self._lanes: dict[str, list[Entry]] = {}
        self._entries: dict[str, Entry] = {}
        self._husks = 0
        self._serials = count()

    def __len__(self) -> int:
        """Requests that wait."""
        return len(self._entries)

    def __iter__(self) -> Iterator[Request]:
        """In the order of their numbers; tenants' turns are not played out. For snapshots and tests: O(n log n)."""
        return (entry.request for entry in sorted(self._entries.values()))

    def push(self, request: Request, outlook: Outlook) -> None:
        """The request waits from now on."""
        self._counters.arrive(request.tenant)
        entry = Entry(
            number=self.policy.number(request, outlook),
            served=self._counters.served(request.tenant),
            order=request.order,
            serial=next(self._serials),
            renewed=self.policy.patience is None or request.delivered,
            tokens=outlook.prefill_tokens,
            request=request,
        )
        self._entries[request.request_id] = entry
        self.tokens += len(request.known)
        self.prefill_tokens += entry.tokens
        heapq.heappush(self._lanes.setdefault(self._lane(request), []), entry)

    def remove(self, request: Request) -> None:
        """The request waits no longer. Raises KeyError where it does not."""
        entry = self._entries.pop(request.request_id)
        self._counters.depart(request.tenant)
        self.displaceable.discard(request.request_id, request.priority, request.tenant)
        self.tokens -= len(request.known)
        self.prefill_tokens -= entry.tokens
        lane = self._lanes[self._lane(request)]
        if lane[0] is entry:
            heapq.heappop(lane)
        else:
            self._husks += 1
        if not lane:
            del self._lanes[self._lane(request)]
        elif self._husks > _FEW_HUSKS + len(self._entries):
            self._sweep()

    def head(self, now: float) -> Entry | None:
        """Who is next, or None. Amortised O(log n): each request is passed over as a husk, or renewed, once."""
        lane = self._lanes.get(self._next_lane())
        while lane:
            entry = lane[0]
            if self._entries.get(entry.request.request_id) is not entry:
                heapq.heappop(lane)
                self._husks -= 1
            elif not entry.renewed and entry.number < now:
                later = self._renew(entry)
                self._entries[entry.request.request_id] = later
                heapq.heapreplace(lane, later)
            else:
                return entry
        return None

    def before(self, request: Request, number: float, without: Request | None = None) -> tuple[int, int]:
        """Requests that would be served before this arrival with this number, and their prompt tokens to compute;
        `without` one that waits but will not.

        O(1) for `fcfs`, else O(n): for the door, never for a step. `fair`: of its own tenant only, an underestimate.
        """
        if self.policy.name == "fcfs":
            if without is None:
                return len(self), self.prefill_tokens
            return len(self) - 1, self.prefill_tokens - self._entries[without.request_id].tokens
        lane = self._lane(request)
        ahead = [
            entry.tokens
            for entry in self._entries.values()
            if entry.number <= number and self._lane(entry.request) == lane and entry.request is not without
        ]
        return len(ahead), sum(ahead)

    def _lane(self, request: Request) -> str:
        return request.tenant if self.policy.by_tenant else ""

    def _next_lane(self) -> str:
        return (self._counters.least() or "") if self.policy.by_tenant else ""

    def _renew(self, entry: Entry) -> Entry:
        return entry._replace(number=entry.number + (self.policy.patience or 0.0), renewed=True)

    def _sweep(self) -> None:
        self._lanes.clear()
        for entry in self._entries.values():
            self._lanes.setdefault(self._lane(entry.request), []).append(entry)
        for lane in self._lanes.values():
            heapq.heapify(lane)
        self._husks = 0

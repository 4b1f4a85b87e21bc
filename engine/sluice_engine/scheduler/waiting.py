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

    late: bool  # given up: behind all that can still be in time
    number: float
    served: float  # the tenant's counter on arrival: the tie-break
    order: int
    serial: int
    renewed: bool
    work: float  # seconds of prompt to compute, as of its arrival; 0 while no model was trusted
    request: Request


class WaitingQueue:
    """Requests that wait, first the one that the policy serves next."""

    def __init__(self, policy: Policy, counters: TenantCounters) -> None:
        self.policy = policy
        self.tokens = 0  # known tokens of all that wait
        self.work = 0.0  # seconds of prompt that they have to compute, as of arrival
        self.displaceable = Displaceable(counters)
        self._counters = counters
        self._lanes: dict[str, list[Entry]] = {}
        self._entries: dict[str, Entry] = {}
        self._late: dict[str, None] = {}  # those of them that were given up, the first one first
        self._husks = 0
        self._serials = count()

    def __len__(self) -> int:
        """Requests that wait."""
        return len(self._entries)

    def __iter__(self) -> Iterator[Request]:
        """In the order of their numbers; tenants' turns are not played out. For snapshots and tests: O(n log n)."""
        return (entry.request for entry in sorted(self._entries.values()))

    def entry(self, request: Request, outlook: Outlook, late: bool = False) -> Entry:
        """The place that the request would have if it came now."""
        return Entry(
            late=late,
            number=self.policy.number(request, outlook),
            served=self._counters.served(request.tenant),
            order=request.order,
            serial=next(self._serials),
            renewed=self.policy.patience is None or request.delivered,
            work=outlook.prefill_work,
            request=request,
        )

    def push(self, request: Request, outlook: Outlook, late: bool = False) -> None:
        """The request waits from now on; a `late` one behind all that are not."""
        self._counters.arrive(request.tenant)
        entry = self.entry(request, outlook, late)
        self._entries[request.request_id] = entry
        if late:
            self._late[request.request_id] = None
        self.tokens += len(request.known)
        self.work += entry.work
        heapq.heappush(self._lanes.setdefault(self._lane(request), []), entry)

    def remove(self, request: Request) -> None:
        """The request waits no longer. Raises KeyError where it does not."""
        entry = self._entries.pop(request.request_id)
        self._counters.depart(request.tenant)
        self.displaceable.discard(request.request_id, (request.priority, not entry.late), request.tenant)
        self._late.pop(request.request_id, None)
        self.tokens -= len(request.known)
        self.work = self.work - entry.work if self._entries else 0.0
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

    def give_up(self, request: Request) -> None:
        """A request that waits goes behind all that can still be in time."""
        entry = self._entries[request.request_id]
        later = entry._replace(late=True, serial=next(self._serials))
        self._entries[request.request_id] = later
        self._late[request.request_id] = None
        self._husks += 1
        heapq.heappush(self._lanes[self._lane(request)], later)
        self.displaceable.give_up(request.request_id, request.priority, request.tenant)

    def line(self, newcomer: Entry) -> list[Entry]:
        """Who can still be in time, in order of service, the newcomer among them. O(n log n), and n is what is served
        within a deadline: for the door, never for a step. `fair`: of its own tenant only, an underestimate."""
        lane = self._lane(newcomer.request)
        others = (entry for entry in self._entries.values() if not entry.late and self._lane(entry.request) == lane)
        return sorted((*others, newcomer))

    def first_given_up(self) -> Request | None:
        """Who has been late for longest; None where nobody is."""
        name = next(iter(self._late), None)
        return None if name is None else self._entries[name].request

    def _lane(self, request: Request) -> str:
        return request.tenant if self.policy.by_tenant else ""

    def _next_lane(self) -> str:
        return (self._counters.least() or "") if self.policy.by_tenant else ""

    def _renew(self, entry: Entry) -> Entry:
        late, number, served, order, serial, _, work, request = entry
        return Entry(late, number + (self.policy.patience or 0.0), served, order, serial, True, work, request)

    def _sweep(self) -> None:
        self._lanes.clear()
        for entry in self._entries.values():
            self._lanes.setdefault(self._lane(entry.request), []).append(entry)
        for lane in self._lanes.values():
            heapq.heapify(lane)
        self._husks = 0

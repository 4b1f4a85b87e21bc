"""The queue in policy order. A step reads its head only, so 10,000 waiting requests cost it nothing.

One heap (`fair`: one per tenant). The entry of a request that is removed from the middle stays in the heap, *stale*,
until it is the first one or until stale entries are the majority.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from itertools import count

from sluice_engine.request import Request
from sluice_engine.scheduler.load_shedding.eviction import EvictionCandidates
from sluice_engine.scheduler.load_shedding.ordered_queue import Entry, OrderedQueue
from sluice_engine.scheduler.policies import Policy, PrefillEstimate
from sluice_engine.scheduler.policies.tenants import LeastServed, TenantCounters

_FEW_STALE = 64


class WaitingQueue:
    """Waiting requests, first the one that the policy serves next."""

    def __init__(self, policy: Policy, counters: TenantCounters) -> None:
        self.policy = policy
        self.tokens = 0  # known tokens of all waiting requests
        self.work = 0.0  # seconds of prompt that they have to compute, as of their arrival
        self.evictable = EvictionCandidates(counters)
        self._counters = counters
        self._heaps: dict[str, list[Entry]] = {}
        self._in_time_tenants = LeastServed(counters.served)  # of requests that are not late; read by `fair` only
        # By heap key: the requests that are not late; None until first needed.
        self._in_time: dict[str, OrderedQueue] | None = None
        self._entries: dict[str, Entry] = {}
        self._late: OrderedDict[str, None] = OrderedDict()  # ids of late ones, in the order in which they became late
        self._stale = 0
        self._serials = count()

    def __len__(self) -> int:
        """Waiting requests."""
        return len(self._entries)

    def __iter__(self) -> Iterator[Request]:
        """In the order of their numbers, without tenants' turns. For snapshots and tests: O(n log n)."""
        return (entry.request for entry in sorted(self._entries.values()))

    def entry(self, request: Request, estimate: PrefillEstimate, late: bool = False) -> Entry:
        """The entry that the request would have if it were queued now."""
        return Entry(
            late=late,
            number=self.policy.number(request, estimate),
            served=self._counters.served(request.tenant),
            order=request.order,
            serial=next(self._serials),
            renewed=self.policy.patience is None or request.delivered,
            work=estimate.prefill_work,
            request=request,
        )

    def push(self, request: Request, estimate: PrefillEstimate, late: bool = False) -> None:
        """Add a request; a `late` one is served after all that are not. O(log n)."""
        self._counters.arrive(request.tenant)
        entry = self.entry(request, estimate, late)
        self._entries[request.request_id] = entry
        if late:
            self._late[request.request_id] = None
        else:
            self._add_in_time(entry)
            self._in_time_tenants.add(request.tenant)
        self.tokens += len(request.known)
        self.work += entry.work
        heapq.heappush(self._heaps.setdefault(self._heap_key(request), []), entry)

    def remove(self, request: Request) -> None:
        """Remove a request. Raises KeyError where it is not queued. Amortised O(log n): the heaps are swept after as many
        removals as there are waiting requests."""
        entry = self._entries.pop(request.request_id)
        self._counters.depart(request.tenant)
        self.evictable.discard(request.request_id, (request.priority, not entry.late), request.tenant)
        if entry.late:
            del self._late[request.request_id]
        else:
            self._remove_in_time(entry)
            self._in_time_tenants.remove(request.tenant)
        self.tokens -= len(request.known)
        self.work = self.work - entry.work if self._entries else 0.0
        heap = self._heaps[self._heap_key(request)]
        if heap[0] is entry:
            heapq.heappop(heap)
        else:
            self._stale += 1
        if not heap:
            del self._heaps[self._heap_key(request)]
        elif self._stale > _FEW_STALE + len(self._entries):
            self._sweep()

    def head(self, now: float) -> Entry | None:
        """The next entry, or None. Amortised O(log n): each entry is dropped as stale, or renewed, once."""
        heap = self._heaps.get(self._next_heap_key())
        while heap:
            entry = heap[0]
            if self._entries.get(entry.request.request_id) is not entry:
                heapq.heappop(heap)
                self._stale -= 1
            elif not entry.renewed and entry.number < now:
                later = self._renew(entry)
                self._entries[entry.request.request_id] = later
                if not entry.late:
                    self._remove_in_time(entry)
                    self._add_in_time(later)
                heapq.heapreplace(heap, later)
            else:
                return entry
        return None

    def demote(self, request: Request) -> None:
        """Serve a waiting request after all that can still meet their deadline. O(log n)."""
        entry = self._entries[request.request_id]
        if not entry.late:
            self._remove_in_time(entry)
            self._in_time_tenants.remove(request.tenant)
        self._late[request.request_id] = None
        self._replace(entry, late=True)
        self.evictable.demote(request.request_id, request.priority, request.tenant)

    def exempt(self, request: Request) -> None:
        """Serve a late request in the policy's order, however late it is, and never evict it. O(log n)."""
        request.exempt = True
        self.evictable.discard(request.request_id, (request.priority, False), request.tenant)
        del self._late[request.request_id]
        self._add_in_time(self._replace(self._entries[request.request_id], late=False))
        self._in_time_tenants.add(request.tenant)

    def _replace(self, entry: Entry, late: bool) -> Entry:
        name, heap = entry.request.request_id, self._heaps[self._heap_key(entry.request)]
        self._entries[name] = replacement = entry._replace(late=late, serial=next(self._serials))
        if heap[0] is entry:
            heapq.heapreplace(heap, replacement)
        else:
            self._stale += 1
            heapq.heappush(heap, replacement)
        return replacement

    def in_time_with(self, request: Request) -> OrderedQueue:
        """The requests that can still meet their deadline, in one order with this one. `fair`: of its own tenant only, which
        underestimates the wait. O(1), and O(n log n) the first time: an engine without deadlines keeps no such queues."""
        if self._in_time is None:
            self._in_time = {}
            for entry in sorted(self._entries.values()):
                if not entry.late:
                    self._add_in_time(entry)
        return self._in_time.get(self._heap_key(request)) or OrderedQueue()

    def longest_late(self) -> Request | None:
        """The request that was demoted first, or None. O(1)."""
        name = next(iter(self._late), None)
        return None if name is None else self._entries[name].request

    def _heap_key(self, request: Request) -> str:
        return request.tenant if self.policy.by_tenant else ""

    def _add_in_time(self, entry: Entry) -> None:
        if self._in_time is not None:
            self._in_time.setdefault(self._heap_key(entry.request), OrderedQueue()).add(entry)

    def _remove_in_time(self, entry: Entry) -> None:
        if self._in_time is None:
            return
        key = self._heap_key(entry.request)
        self._in_time[key].remove(entry)
        if not self._in_time[key]:
            del self._in_time[key]

    def _next_heap_key(self) -> str:
        """`fair`: of the tenant with the least counter, of those with a request that is not late if there are any."""
        if not self.policy.by_tenant:
            return ""
        tenant = self._in_time_tenants.least()
        return (self._counters.least() or "") if tenant is None else tenant

    def _renew(self, entry: Entry) -> Entry:
        late, number, served, order, serial, _, work, request = entry
        return Entry(late, number + (self.policy.patience or 0.0), served, order, serial, True, work, request)

    def _sweep(self) -> None:
        self._heaps.clear()
        for entry in self._entries.values():
            self._heaps.setdefault(self._heap_key(entry.request), []).append(entry)
        for heap in self._heaps.values():
            heapq.heapify(heap)
        self._stale = 0

"""Waiting queue of a coarse engine, ordered first come first served or by priority.

Requests that cannot meet their TTFT deadline come last. A full queue evicts the same requests as the real one.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from sluice_engine.scheduler.load_shedding.eviction import EvictionCandidates
from sluice_engine.scheduler.load_shedding.lateness import Candidate, ServiceRate, demoted, excess
from sluice_engine.scheduler.policies.priority import AGEING_SECONDS
from sluice_engine.scheduler.policies.tenants import OUTPUT_WEIGHT, PROMPT_WEIGHT, TenantCounters
from sluice_sim.engine.offered_request import OfferedRequest


@dataclass(slots=True, eq=False)
class CoarseRequest:
    """A request in the engine. Lengths in tokens; `begun` and `ends` are positions in the count of decode steps."""

    request: OfferedRequest
    name: str
    known: int  # prompt tokens, and output tokens generated before a preemption
    left: int  # output tokens still to generate
    computed: int = 0
    begun: int = 0  # step count at which decoding began
    ends: int = 0
    decoding: bool = False
    work: float = 0.0  # prefill seconds, estimated on arrival
    due: float = math.inf  # the first token's deadline, s
    late: bool = False  # deferred: served after all requests that can still meet their deadline
    started: float | None = None  # time of its first run, s


class ArrivalConditions(NamedTuple):
    """The engine's state when a job arrives. Seconds.

    `pace` is None if the engine's model has too few steps or late requests are not deferred."""

    now: float
    full: bool
    output: float  # mean output tokens of finished requests
    ttft: float
    pace: ServiceRate | None


class CoarseQueue:
    """The waiting jobs. Tenants are charged for whole prompts and whole outputs at once."""

    def __init__(self, counters: TenantCounters, context: int, allowed: float, by_priority: bool = False) -> None:
        """`context`: maximum model length in tokens.

        `allowed`: weighted tokens by which a tenant may be ahead without counting as less important."""
        self._counters, self._context, self._allowed, self._by_priority = counters, context, allowed, by_priority
        self.line: deque[CoarseRequest] = deque()  # jobs that can meet their deadline, in order
        self.late: deque[CoarseRequest] = deque()  # deferred jobs, behind all of `line`
        self._evictable = EvictionCandidates(counters)
        self._never_run: dict[str, CoarseRequest] = {}  # waiting jobs that have never run

    def __len__(self) -> int:
        """Number of waiting jobs."""
        return len(self.line) + len(self.late)

    def __iter__(self) -> Iterator[CoarseRequest]:
        """The waiting jobs in order of service."""
        return chain(self.line, self.late)

    @property
    def first(self) -> CoarseRequest:
        """The next job to start. Raises IndexError if the queue is empty."""
        return self.line[0] if self.line else self.late[0]

    def first_in_time(self, now: float) -> CoarseRequest | None:
        """The next job that can still meet its deadline; a head of the queue that cannot any more is deferred."""
        line = self.line
        while line:
            job = line[0]
            if job.started is not None or now + job.work <= job.due:
                return job
            self._defer(job)
        return None

    def offer(
        self, job: CoarseRequest, conditions: ArrivalConditions, max_deferral: Callable[[], float]
    ) -> CoarseRequest | None:
        """Add a job, unless the queue is full and no waiting job is less important.

        Returns the rejected or evicted job, or None. `max_deferral` gives the seconds for which a deferred job may wait
        behind others; it is called only if a job is deferred."""
        one, name = job.request.arrival, job.name
        weight = PROMPT_WEIGHT * one.prompt + OUTPUT_WEIGHT * min(float(one.most(self._context)), conditions.output)
        others = self._demoted(job, conditions)
        rank = (one.priority, not job.late)
        refused: CoarseRequest | None = None
        overdue = self.late[0] if self.late and not job.late else None
        if overdue is not None and conditions.now - overdue.request.record.arrived_at > max_deferral():
            late = overdue.request
            evicted = self._evictable.for_overdue(overdue.name, late.arrival.priority, one.priority)
            if evicted is None:
                return job
            refused = self._never_run[evicted]
        elif conditions.full:
            evicted = self._evictable.for_newcomer(rank, one.tenant, weight)
            if evicted is None:
                return job
            refused = self._never_run[evicted]
        if refused is not None:
            (self.late if refused.late else self.line).remove(refused)
            self._remove(refused)
        for other in others:
            if other is not refused:
                self._defer(other)
        self._insert(job)
        self._counters.arrive(one.tenant)
        self._evictable.add(name, rank, one.tenant, weight)
        self._never_run[name] = job
        return refused

    def _demoted(self, job: CoarseRequest, conditions: ArrivalConditions) -> list[CoarseRequest]:
        """The waiting jobs to defer so that the others meet their deadlines. Marks `job` late if it is one of them."""
        if conditions.pace is None:
            return []
        line = [*self.line, job]
        if self._by_priority and self.line:
            line.sort(key=_priority_key)
        if _all_in_time(line, conditions, conditions.pace):
            return []
        places = demoted(self._candidates(line, conditions), conditions.pace)
        job.late = line.index(job) in places
        return [line[index] for index in sorted(places) if line[index] is not job]

    def _candidates(self, line: Sequence[CoarseRequest], conditions: ArrivalConditions) -> list[Candidate]:
        tenants = {job.request.arrival.tenant for job in line}
        ahead = excess({tenant: self._evictable.usage(tenant) for tenant in tenants}, self._allowed)
        return [_candidate(job, conditions, ahead) for job in line]

    def _insert(self, job: CoarseRequest) -> None:
        """Insert a job at the end of its queue, or by priority with ageing (`AGEING_SECONDS` per priority level)."""
        line = self.late if job.late else self.line
        place = len(line)
        while self._by_priority and place and _priority_key(line[place - 1]) > _priority_key(job):
            place -= 1
        line.insert(place, job)

    def _defer(self, job: CoarseRequest) -> None:
        one = job.request.arrival
        self._evictable.demote(job.name, one.priority, one.tenant)
        job.late = True
        self.line.remove(job)
        self._insert(job)

    def requeue(self, job: CoarseRequest) -> None:
        """Put a preempted job at the head of the queue."""
        self.line.appendleft(job)
        self._counters.arrive(job.request.arrival.tenant)

    def start(self, cached: int) -> None:
        """Remove the first job, which starts to run with `cached` tokens of its prompt in the prefix cache."""
        job = self.line.popleft() if self.line else self.late.popleft()
        if job.name in self._never_run:
            self._counters.charge(job.request.arrival.tenant, PROMPT_WEIGHT * (job.known - cached))
        self._remove(job)

    def charge_finished(self, job: CoarseRequest, delivered: int) -> None:
        """Charge the tenant of a finished job for its `delivered` output tokens.

        The end-of-sequence token is not charged, as in the engine."""
        self._counters.charge(job.request.arrival.tenant, OUTPUT_WEIGHT * delivered)

    def _remove(self, job: CoarseRequest) -> None:
        one, name = job.request.arrival, job.name
        self._counters.depart(one.tenant)
        self._evictable.discard(name, (one.priority, not job.late), one.tenant)
        job.late = False
        self._never_run.pop(name, None)


def _candidate(job: CoarseRequest, conditions: ArrivalConditions, standing: Mapping[str, float]) -> Candidate:
    one = job.request.arrival
    if job.started is not None:
        return Candidate(job.work, math.inf, one.priority)
    return Candidate(job.work, _deadline(job, conditions), one.priority, standing[one.tenant])


def _deadline(job: CoarseRequest, conditions: ArrivalConditions) -> float:
    """Seconds from now."""
    return job.request.record.arrived_at + conditions.ttft - conditions.now


def _all_in_time(line: Sequence[CoarseRequest], conditions: ArrivalConditions, pace: ServiceRate) -> bool:
    """True if every job meets its deadline, so that `demoted` would return nothing. O(n), without tenant weights."""
    work = 0.0
    for ahead, job in enumerate(line):
        work += job.work
        if job.started is None and pace.first_token(ahead, work, job.work) > _deadline(job, conditions):
            return False
    return True


def _priority_key(job: CoarseRequest) -> float:
    """Sort key under the policy `priority`; jobs that have run before come first."""
    one = job.request
    return -math.inf if job.started is not None else one.record.arrived_at - AGEING_SECONDS * one.arrival.priority

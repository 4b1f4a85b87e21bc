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
class Job:
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
    late: bool = False  # deferred: served after all requests that can still meet their deadline
    started: float | None = None  # time of its first run, s


class Room(NamedTuple):
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
        self.line: deque[Job] = deque()  # jobs that can meet their deadline, in order
        self.late: deque[Job] = deque()  # deferred jobs, behind all of `line`
        self._evictable = EvictionCandidates(counters)
        self._fresh: dict[str, Job] = {}  # waiting jobs that have never run
        self.late_from = -math.inf  # before this time deferred jobs start only on an engine with no running request

    def __len__(self) -> int:
        """Number of waiting jobs."""
        return len(self.line) + len(self.late)

    def __iter__(self) -> Iterator[Job]:
        """The waiting jobs in order of service."""
        return chain(self.line, self.late)

    @property
    def first(self) -> Job:
        """The next job to start. Raises IndexError if the queue is empty."""
        return self.line[0] if self.line else self.late[0]

    def come(self, job: Job, room: Room, patience: Callable[[], float]) -> Job | None:
        """Add a job, unless the queue is full and no waiting job is less important.

        Returns the rejected or evicted job, or None. `patience` gives the seconds for which a deferred job may wait
        behind others; it is called only if a job is deferred."""
        one, name = job.request.arrival, job.name
        weight = PROMPT_WEIGHT * one.prompt + OUTPUT_WEIGHT * min(float(one.most(self._context)), room.output)
        others = self._demoted(job, room)
        rank = (one.priority, not job.late)
        refused: Job | None = None
        overdue = self.late[0] if self.late and not job.late else None
        if overdue is not None and room.now - overdue.request.record.arrived_at > patience():
            late = overdue.request
            leaves = self._evictable.for_overdue(overdue.name, late.arrival.priority, one.priority)
            if leaves is None:
                return job
            refused = self._fresh[leaves]
        elif room.full:
            leaves = self._evictable.for_newcomer(rank, one.tenant, weight)
            if leaves is None:
                return job
            refused = self._fresh[leaves]
        if refused is not None:
            (self.late if refused.late else self.line).remove(refused)
            self._gone(refused)
        if others or job.late:
            self.late_from = room.now + room.ttft
        for other in others:
            if other is not refused:
                self._give_up(other)
        self._stand(job)
        self._counters.arrive(one.tenant)
        self._evictable.add(name, rank, one.tenant, weight)
        self._fresh[name] = job
        return refused

    def _demoted(self, job: Job, room: Room) -> list[Job]:
        """The waiting jobs to defer so that the others meet their deadlines. Marks `job` late if it is one of them."""
        if room.pace is None:
            return []
        line = [*self.line, job]
        if self._by_priority and self.line:
            line.sort(key=_number)
        if _all_in_time(line, room, room.pace):
            return []
        gone = demoted(self._candidates(line, room), room.pace)
        job.late = line.index(job) in gone
        return [line[index] for index in sorted(gone) if line[index] is not job]

    def _candidates(self, line: Sequence[Job], room: Room) -> list[Candidate]:
        tenants = {job.request.arrival.tenant for job in line}
        ahead = excess({tenant: self._evictable.usage(tenant) for tenant in tenants}, self._allowed)
        return [_candidate(job, room, ahead) for job in line]

    def _stand(self, job: Job) -> None:
        """Insert a job at the end of its queue, or by priority with ageing (`AGEING_SECONDS` per priority level)."""
        line = self.late if job.late else self.line
        place = len(line)
        while self._by_priority and place and _number(line[place - 1]) > _number(job):
            place -= 1
        line.insert(place, job)

    def _give_up(self, job: Job) -> None:
        one = job.request.arrival
        self._evictable.demote(job.name, one.priority, one.tenant)
        job.late = True
        self.line.remove(job)
        self._stand(job)

    def come_back(self, job: Job) -> None:
        """Put a preempted job at the head of the queue."""
        self.line.appendleft(job)
        self._counters.arrive(job.request.arrival.tenant)

    def start(self, cached: int) -> None:
        """Remove the first job, which starts to run with `cached` tokens of its prompt in the prefix cache."""
        job = self.line.popleft() if self.line else self.late.popleft()
        if job.name in self._fresh:
            self._counters.charge(job.request.arrival.tenant, PROMPT_WEIGHT * (job.known - cached))
        self._gone(job)

    def ended(self, job: Job, delivered: int) -> None:
        """Charge the tenant of a finished job for its `delivered` output tokens.

        The end-of-sequence token is not charged, as in the engine."""
        self._counters.charge(job.request.arrival.tenant, OUTPUT_WEIGHT * delivered)

    def _gone(self, job: Job) -> None:
        one, name = job.request.arrival, job.name
        self._counters.depart(one.tenant)
        self._evictable.discard(name, (one.priority, not job.late), one.tenant)
        job.late = False
        self._fresh.pop(name, None)


def _candidate(job: Job, room: Room, standing: Mapping[str, float]) -> Candidate:
    one = job.request.arrival
    if job.started is not None:
        return Candidate(job.work, math.inf, one.priority)
    return Candidate(job.work, _deadline(job, room), one.priority, standing[one.tenant])


def _deadline(job: Job, room: Room) -> float:
    """Seconds from now."""
    return job.request.record.arrived_at + room.ttft - room.now


def _all_in_time(line: Sequence[Job], room: Room, pace: ServiceRate) -> bool:
    """True if every job meets its deadline, so that `demoted` would return nothing. O(n), without tenant weights."""
    work = 0.0
    for ahead, job in enumerate(line):
        work += job.work
        if job.started is None and pace.first_token(ahead, work, job.work) > _deadline(job, room):
            return False
    return True


def _number(job: Job) -> float:
    """Sort key under the policy `priority`; jobs that have run before come first."""
    one = job.request
    return -math.inf if job.started is not None else one.record.arrived_at - AGEING_SECONDS * one.arrival.priority

"""Who waits at a coarse engine: first come, first served, or by priority, and who cannot be in time last; a full queue sheds whom the
real one would."""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from sluice_engine.scheduler.displacing import Displaceable
from sluice_engine.scheduler.lateness import Candidate, Pace, beyond, given_up
from sluice_engine.scheduler.policies.priority import AGEING_SECONDS
from sluice_engine.scheduler.tenants import OUTPUT_WEIGHT, PROMPT_WEIGHT, TenantCounters
from sluice_sim.visit import Visit


@dataclass(slots=True, eq=False)
class Job:
    """A visit at work. Tokens; `ends` on the engine's count of decode steps."""

    visit: Visit
    name: str
    known: int  # prompt, and what was generated before a preemption
    left: int  # output tokens still to give
    computed: int = 0
    begun: int = 0  # the step count when it began to decode
    ends: int = 0
    decoding: bool = False
    work: float = 0.0  # seconds of prompt, as of its arrival
    late: bool = False  # given up: behind all that can still be in time
    started: float | None = None  # when it first ran


class Room(NamedTuple):
    """What the engine says of its queue when a job comes. Seconds; `pace` None: no model is trusted yet, or nobody sorts."""

    now: float
    full: bool
    output: float  # tokens that answers have had in the mean
    ttft: float
    pace: Pace | None


class CoarseQueue:
    """Jobs that wait. What tenants were served is charged by whole prompts and whole outputs."""

    def __init__(self, counters: TenantCounters, context: int, allowed: float, by_priority: bool = False) -> None:
        """`context`: tokens of the longest request; `allowed`: weighted tokens by which tenants may differ without counting
        less."""
        self._counters, self._context, self._allowed, self._by_priority = counters, context, allowed, by_priority
        self.line: deque[Job] = deque()  # who waits, in order; and behind them all:
        self.late: deque[Job] = deque()  # who is given up
        self._displaceable = Displaceable(counters)
        self._fresh: dict[str, Job] = {}  # those that have never run
        self.late_from = -math.inf  # until then what runs and who can be in time need all there is

    def __len__(self) -> int:
        """Jobs that wait."""
        return len(self.line) + len(self.late)

    def __iter__(self) -> Iterator[Job]:
        """In order."""
        return chain(self.line, self.late)

    @property
    def first(self) -> Job:
        """Who is next. Raises IndexError where nobody waits."""
        return self.line[0] if self.line else self.late[0]

    def come(self, job: Job, room: Room, patience: Callable[[], float]) -> Job | None:
        """A job waits, unless the queue is full and nobody makes way. Says who is refused. `patience`: seconds for which
        who is late lets others go first; asked for where somebody is."""
        one, name = job.visit.arrival, job.name
        weight = PROMPT_WEIGHT * one.prompt + OUTPUT_WEIGHT * min(float(one.most(self._context)), room.output)
        others = self._given_up(job, room)
        rank = (one.priority, not job.late)
        refused: Job | None = None
        overdue = self.late[0] if self.late and not job.late else None
        if overdue is not None and room.now - overdue.visit.record.arrived_at > patience():
            late = overdue.visit
            leaves = self._displaceable.outstaying(overdue.name, late.arrival.priority, one.priority)
            if leaves is None:
                return job
            refused = self._fresh[leaves]
        elif room.full:
            leaves = self._displaceable.giving_way(rank, one.tenant, weight)
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
        self._displaceable.add(name, rank, one.tenant, weight)
        self._fresh[name] = job
        return refused

    def _given_up(self, job: Job, room: Room) -> list[Job]:
        """Who waits and makes way for this job to be in time; it is marked where it cannot be."""
        if room.pace is None:
            return []
        line = [*self.line, job]
        if self._by_priority and self.line:
            line.sort(key=_number)
        if _all_in_time(line, room, room.pace):
            return []
        gone = given_up(self._candidates(line, room), room.pace)
        job.late = line.index(job) in gone
        return [line[index] for index in sorted(gone) if line[index] is not job]

    def _candidates(self, line: Sequence[Job], room: Room) -> list[Candidate]:
        tenants = {job.visit.arrival.tenant for job in line}
        ahead = beyond({tenant: self._displaceable.standing(tenant) for tenant in tenants}, self._allowed)
        return [_candidate(job, room, ahead) for job in line]

    def _stand(self, job: Job) -> None:
        """At the end of its line; by priority, before those of a lower one that came at the same time (`AGEING_SECONDS`)."""
        line = self.late if job.late else self.line
        place = len(line)
        while self._by_priority and place and _number(line[place - 1]) > _number(job):
            place -= 1
        line.insert(place, job)

    def _give_up(self, job: Job) -> None:
        one = job.visit.arrival
        self._displaceable.give_up(job.name, one.priority, one.tenant)
        job.late = True
        self.line.remove(job)
        self._stand(job)

    def come_back(self, job: Job) -> None:
        """A job that was preempted waits at the head."""
        self.line.appendleft(job)
        self._counters.arrive(job.visit.arrival.tenant)

    def start(self, cached: int) -> None:
        """The first waits no longer and runs, with so many tokens of its prompt cached."""
        job = self.line.popleft() if self.line else self.late.popleft()
        if job.name in self._fresh:
            self._counters.charge(job.visit.arrival.tenant, PROMPT_WEIGHT * (job.known - cached))
        self._gone(job)

    def ended(self, job: Job, delivered: int) -> None:
        """A job has had all its output, so many tokens. The one that says that it ends is charged to nobody, as in the
        engine."""
        self._counters.charge(job.visit.arrival.tenant, OUTPUT_WEIGHT * delivered)

    def _gone(self, job: Job) -> None:
        one, name = job.visit.arrival, job.name
        self._counters.depart(one.tenant)
        self._displaceable.discard(name, (one.priority, not job.late), one.tenant)
        job.late = False
        self._fresh.pop(name, None)


def _candidate(job: Job, room: Room, standing: Mapping[str, float]) -> Candidate:
    one = job.visit.arrival
    if job.started is not None:
        return Candidate(job.work, math.inf, one.priority)
    return Candidate(job.work, _deadline(job, room), one.priority, standing[one.tenant])


def _deadline(job: Job, room: Room) -> float:
    """Seconds from now."""
    return job.visit.record.arrived_at + room.ttft - room.now


def _all_in_time(line: Sequence[Job], room: Room, pace: Pace) -> bool:
    """Whether nobody need be given up: what `given_up` would find, without asking who weighs what."""
    work = 0.0
    for ahead, job in enumerate(line):
        work += job.work
        if job.started is None and pace.first_token(ahead, work, job.work) > _deadline(job, room):
            return False
    return True


def _number(job: Job) -> float:
    """Where it stands among others by the policy `priority`; who has run before comes first."""
    one = job.visit
    return -math.inf if job.started is not None else one.record.arrived_at - AGEING_SECONDS * one.arrival.priority

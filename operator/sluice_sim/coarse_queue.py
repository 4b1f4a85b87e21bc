"""Who waits at a coarse engine: first come, first served; a full queue sheds whom the real one would."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from sluice_engine.scheduler.displacing import Displaceable
from sluice_engine.scheduler.tenants import OUTPUT_WEIGHT, PROMPT_WEIGHT, TenantCounters
from sluice_sim.engine import Visit


@dataclass(slots=True, eq=False)
class Job:
    """A visit at work. Tokens; `ends` on the engine's count of decode steps."""

    visit: Visit
    known: int  # prompt, and what was generated before a preemption
    left: int  # output tokens still to give
    computed: int = 0
    begun: int = 0  # the step count when it began to decode
    ends: int = 0
    decoding: bool = False


class CoarseQueue:
    """Jobs that wait. What tenants were served is charged by whole prompts and whole outputs."""

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self._counters = TenantCounters()
        self._displaceable = Displaceable(self._counters)
        self._fresh: dict[str, Job] = {}  # those that have never run

    def __len__(self) -> int:
        """Jobs that wait."""
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        """In order."""
        return iter(self._jobs)

    @property
    def first(self) -> Job:
        """Who is next. Raises IndexError where nobody waits."""
        return self._jobs[0]

    def come(self, job: Job, output: float, full: bool) -> Job | None:
        """A job waits, unless the queue is full and nobody makes way. Says who is refused. `output`: tokens that
        answers have had in the mean."""
        one, name = job.visit.arrival, str(job.visit.number)
        weight = PROMPT_WEIGHT * one.prompt + OUTPUT_WEIGHT * min(float(one.output), output)
        refused: Job | None = None
        if full:
            leaves = self._displaceable.giving_way(one.priority, one.tenant, weight)
            if leaves is None:
                return job
            refused = self._fresh[leaves]
            self._jobs.remove(refused)
            self._gone(refused)
        self._jobs.append(job)
        self._counters.arrive(one.tenant)
        self._displaceable.add(name, one.priority, one.tenant, weight)
        self._fresh[name] = job
        return refused

    def come_back(self, job: Job) -> None:
        """A job that was preempted waits at the head."""
        self._jobs.appendleft(job)
        self._counters.arrive(job.visit.arrival.tenant)

    def start(self, cached: int) -> None:
        """The first waits no longer and runs, with so many tokens of its prompt cached."""
        job = self._jobs.popleft()
        if str(job.visit.number) in self._fresh:
            self._counters.charge(job.visit.arrival.tenant, PROMPT_WEIGHT * (job.known - cached))
        self._gone(job)

    def ended(self, job: Job) -> None:
        """A job has had all its output."""
        self._counters.charge(job.visit.arrival.tenant, OUTPUT_WEIGHT * job.visit.arrival.output)

    def _gone(self, job: Job) -> None:
        one, name = job.visit.arrival, str(job.visit.number)
        self._counters.depart(one.tenant)
        self._displaceable.discard(name, one.priority, one.tenant)
        self._fresh.pop(name, None)

"""The prompts of a coarse engine that are being computed, and what one step computes of them: the scheduler's own budget
cuts the chunks, so that they are as long here as there."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from sluice_engine.scheduler.budget import PrefillBudget, chunk_context
from sluice_law.steptime import StepTimeModel
from sluice_sim.coarse_queue import Job


@dataclass(slots=True)
class Chunks:
    """What one step computes of prompts: tokens, Σ chunk × context, what that takes, and whose prompts end with it."""

    tokens: int = 0
    context: float = 0.0
    seconds: float = 0.0
    done: list[Job] = field(default_factory=list)


class CoarsePrompts:
    """Jobs that run and whose prompts are not computed yet, in order of admission."""

    def __init__(self, profile: StepTimeModel) -> None:
        """`profile`: what a step takes in truth."""
        self._profile = profile
        self.jobs: deque[Job] = deque()  # in order

    @property
    def owed(self) -> int:
        """Tokens that are still to be computed."""
        return sum([job.known - job.computed for job in self.jobs]) if self.jobs else 0

    def add(self, job: Job) -> None:
        """One more, behind the others."""
        self.jobs.append(job)

    def remove(self, job: Job) -> None:
        """It was preempted. Raises ValueError where it is not in here."""
        self.jobs.remove(job)

    def step(self, budget: PrefillBudget, room: int, begin: Callable[[PrefillBudget], int]) -> Chunks:
        """Chunks of all jobs in order until the budget is spent or `room` tokens of memory are; `begin` brings one more
        where all have theirs, and says which chunk the budget has for it (0: nobody comes)."""
        found, place, jobs, profile = Chunks(), 0, self.jobs, self._profile
        while True:
            if place < len(jobs):
                chunk = budget.chunk(jobs[place].known - jobs[place].computed, jobs[place].computed)
            elif not (chunk := begin(budget)):
                break
            job = jobs[place]
            place += 1
            chunk = min(chunk, room - found.tokens)
            if chunk <= 0:
                break
            budget.spend(chunk, job.computed)
            context = chunk_context(chunk, job.computed)
            found.tokens += chunk
            found.context += context
            found.seconds += profile.prefill_token * chunk + profile.prefill_context * context
            job.computed += chunk
            if job.computed == job.known:
                found.done.append(job)
        for job in found.done:
            jobs.remove(job)
        return found

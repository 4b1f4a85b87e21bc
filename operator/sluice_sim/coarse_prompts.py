"""The prompts of a coarse engine that are being computed, and what one step computes of them: the scheduler's own budget
cuts the chunks, so that they are as long here as there."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from sluice_engine.scheduler.budget import PrefillBudget, chunk_context
from sluice_law.steptime import StepTimeModel
from sluice_sim.coarse_queue import Job


class Chunks(NamedTuple):
    """What one step computes of prompts: tokens, Σ chunk × context, what that takes, and whose prompts end with it."""

    tokens: int
    context: float
    seconds: float
    done: list[Job]


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

    def step(self, budget: PrefillBudget, room: int, begin: Callable[[PrefillBudget], int], first: int = 0) -> Chunks:
        """Chunks of all jobs in order until the budget is spent or `room` tokens of memory are; `begin` brings one more
        where all have theirs, and says which chunk the budget has for it (0: nobody comes). `first`: the chunk of the only
        job, where that is cut already."""
        place, jobs, profile = 0, self.jobs, self._profile
        tokens, all_context, seconds = 0, 0.0, 0.0
        done: list[Job] = []
        while True:
            if first:
                job, chunk, first = jobs[0], first, 0
            elif place < len(jobs):
                job = jobs[place]
                chunk = budget.chunk(job.known - job.computed, job.computed)
            elif chunk := begin(budget):
                job = jobs[place]
            else:
                break
            place += 1
            chunk = min(chunk, room - tokens)
            if chunk <= 0:
                break
            computed = job.computed
            budget.spend(chunk, computed)
            context = chunk_context(chunk, computed)
            tokens += chunk
            all_context += context
            seconds += profile.prefill_token * chunk + profile.prefill_context * context
            job.computed = computed + chunk
            if job.computed == job.known:
                done.append(job)
        for job in done:
            jobs.remove(job)
        return Chunks(tokens, all_context, seconds, done)

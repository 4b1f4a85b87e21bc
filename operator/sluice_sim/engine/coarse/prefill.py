"""Chunked prefill of a coarse engine. The scheduler's own budget cuts the chunks, so they have the same lengths."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from sluice_engine.scheduler.chunking import chunk_context
from sluice_engine.scheduler.prefill_budget import PrefillBudget
from sluice_perfmodel.step_time import StepTimeModel
from sluice_sim.engine.coarse.waiting_queue import CoarseRequest


class StepPrefill(NamedTuple):
    """The prefill work of one step: tokens, Σ chunk × context, its seconds, and the jobs whose prompts it completes."""

    tokens: int
    context: float
    seconds: float
    done: list[CoarseRequest]


class CoarsePrefill:
    """Running jobs whose prompts are not fully computed yet, in order of admission."""

    def __init__(self, profile: StepTimeModel) -> None:
        """`profile` gives the true step durations."""
        self._profile = profile
        self.jobs: deque[CoarseRequest] = deque()  # in order of admission

    @property
    def remaining_tokens(self) -> int:
        """Prompt tokens still to be computed."""
        return sum([job.known - job.computed for job in self.jobs]) if self.jobs else 0

    def add(self, job: CoarseRequest) -> None:
        """Append a job."""
        self.jobs.append(job)

    def remove(self, job: CoarseRequest) -> None:
        """Remove a preempted job. Raises ValueError if the job is not present."""
        self.jobs.remove(job)

    def step(
        self, budget: PrefillBudget, room: int, begin: Callable[[PrefillBudget], int], first: int = 0
    ) -> StepPrefill:
        """Compute chunks of all jobs in order, until the budget or `room` (free tokens of KV cache) is used up.

        When every job has its chunk, `begin` admits one more job and returns its chunk in tokens (0: none admitted).
        `first` is the chunk of the only job, if the caller has already cut it."""
        place, jobs, profile = 0, self.jobs, self._profile
        tokens, all_context, seconds = 0, 0.0, 0.0
        done: list[CoarseRequest] = []
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
        return StepPrefill(tokens, all_context, seconds, done)

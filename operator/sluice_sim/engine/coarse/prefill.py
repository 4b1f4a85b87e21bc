"""Chunked prefill of a coarse engine. The scheduler's own budget cuts the chunks, so they have the same lengths."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from sluice_engine.scheduler.chunking import chunk_context
from sluice_engine.scheduler.prefill_budget import PrefillBudget
from sluice_perfmodel.step_time import StepTimeModel
from sluice_sim.engine.coarse.waiting_queue import CoarseRequest

Begin = Callable[[PrefillBudget, bool], int]


class StepPrefill(NamedTuple):
    """The prefill work of one step: tokens, Σ chunk × context, its seconds, and the jobs whose prompts it completes."""

    tokens: int
    context: float
    seconds: float
    done: list[CoarseRequest]


class CoarsePrefill:
    """Running jobs whose prompts are not fully computed yet: those that can be in time, and the late ones behind them."""

    def __init__(self, profile: StepTimeModel) -> None:
        """`profile` gives the true step durations."""
        self._profile = profile
        self.jobs: deque[CoarseRequest] = deque()  # in order of admission
        self.late: deque[CoarseRequest] = deque()  # they yield to jobs that can still be in time

    def __bool__(self) -> bool:
        """Whether a prompt is not fully computed."""
        return bool(self.jobs or self.late)

    @property
    def remaining_tokens(self) -> int:
        """Prompt tokens still to be computed."""
        return sum([job.known - job.computed for job in (*self.jobs, *self.late)]) if self else 0

    def add(self, job: CoarseRequest) -> None:
        """Append a job."""
        self.jobs.append(job)

    def remove(self, job: CoarseRequest) -> None:
        """Remove a preempted job. Raises ValueError if the job is not present."""
        (self.jobs if job in self.jobs else self.late).remove(job)

    def sort_late(self, is_late: Callable[[CoarseRequest], bool]) -> None:
        """Move each job to the queue that it belongs to now."""
        for old, new, late in ((self.jobs, self.late, True), (self.late, self.jobs, False)):
            for job in [one for one in old if is_late(one) is late]:
                old.remove(job)
                new.append(job)

    def step(self, budget: PrefillBudget, room: int, begin: Begin, first: int = 0) -> StepPrefill:
        """Compute chunks of all jobs in order, until the budget or `room` (free tokens of KV cache) is used up.

        `begin` admits one more job and returns its chunk in tokens (0: none admitted). It is asked for jobs that can be in
        time (False) before the late running jobs, and for late ones (True) after them. `first` is the chunk of the only
        job, if the caller has already cut it."""
        chunks = _Chunks(self._profile, budget, room)
        if first and not chunks.take(self.jobs[0], first):
            return chunks.result(self)
        for queue, late in ((self.jobs, False), (self.late, True)):
            place = 1 if first and not late else 0
            while True:
                if place < len(queue):
                    job = queue[place]
                    chunk = budget.chunk(job.known - job.computed, job.computed)
                elif chunk := begin(budget, late):
                    job = self.jobs[-1]
                else:
                    break
                place += 1
                if not chunks.take(job, chunk):
                    return chunks.result(self)
        return chunks.result(self)


class _Chunks:
    """The chunks of one step so far."""

    def __init__(self, profile: StepTimeModel, budget: PrefillBudget, room: int) -> None:
        self._profile, self._budget, self._room = profile, budget, room
        self.tokens, self.context, self.seconds = 0, 0.0, 0.0
        self.done: list[CoarseRequest] = []

    def take(self, job: CoarseRequest, chunk: int) -> bool:
        """Compute a chunk of the job; False if the step has no room for it."""
        chunk = min(chunk, self._room - self.tokens)
        if chunk <= 0:
            return False
        computed, profile = job.computed, self._profile
        self._budget.spend(chunk, computed)
        context = chunk_context(chunk, computed)
        self.tokens += chunk
        self.context += context
        self.seconds += profile.prefill_token * chunk + profile.prefill_context * context
        job.computed = computed + chunk
        if job.computed == job.known:
            self.done.append(job)
        return True

    def result(self, prefill: CoarsePrefill) -> StepPrefill:
        """The step's work; the jobs whose prompts are complete are removed."""
        for job in self.done:
            prefill.remove(job)
        return StepPrefill(self.tokens, self.context, self.seconds, self.done)

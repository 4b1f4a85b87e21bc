"""Runs steps on a separate thread, so that the next step can be planned and prepared while one runs.

torch releases the GIL while it computes, so planning costs no model time if a processor core or an accelerator is left
for the model. A Ctrl-C interrupts the wait for a step, never the step.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from sluice_engine.backend.runner import StepResult
from sluice_engine.backend.threads import torch_threads
from sluice_engine.scheduler import Plan
from sluice_perfmodel.step_time import StepTimeModel

Execute = Callable[[], StepResult]


class StepRunner(Protocol):
    """A runner. Plans are prepared and executed in the same order; at most the preceding plan executes during a
    prepare.
    """

    def prepare(self, plan: Plan) -> Execute:
        """Convert the plan to tensors; the returned callable computes it."""


@dataclass(frozen=True, slots=True)
class RunningStep:
    """A step that runs since `begun` (seconds of the caller's clock), or that is queued since then."""

    plan: Plan
    begun: float
    result: Execute  # blocks until the step is computed; may be called repeatedly
    is_computed: Callable[[], bool]
    pace: float | None = None  # seconds; the step ends no earlier

    @property
    def end_of_pace(self) -> float | None:
        """When a step with a pace ends, if it is computed by then."""
        return None if self.pace is None else self.begun + self.pace


class StepPipeline:
    """A runner and its thread. `overlapped`: the next step is prepared while one runs. `threads`: torch's thread count
    within a step; None keeps the current one. `pace`: what each step is held to; None for no pace.
    """

    def __init__(
        self, runner: StepRunner, overlapped: bool, threads: int | None = None, pace: StepTimeModel | None = None
    ) -> None:
        self.overlapped = overlapped
        self._pace = pace
        self._threads = threads
        self._runner = runner
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self.on_end: Callable[[], None] = _nothing  # called by the runner's thread when a step has ended

    def prepare(self, plan: Plan) -> tuple[Plan, Execute]:
        """The plan and its prepared tensors, ready for `begin`."""
        return plan, self._runner.prepare(plan)

    def begin(self, prepared: tuple[Plan, Execute], now: float) -> RunningStep:
        """Queue the prepared step on the runner's thread, where it starts when the preceding one has ended."""
        plan, execute = prepared
        future: Future[StepResult] = self._thread.submit(self._compute, execute)
        future.add_done_callback(lambda _: self.on_end())
        pace = None if self._pace is None else self._pace.predict(plan.whole_work)
        return RunningStep(plan, now, future.result, future.done, pace)

    def _compute(self, execute: Execute) -> StepResult:
        with torch_threads(self._threads):
            return execute()


def _nothing() -> None:
    pass

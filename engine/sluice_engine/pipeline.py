"""Steps on their way through the runner, on a thread of its own: where steps overlap, one runs while the next is
planned and prepared.

torch gives up Python's lock while it computes, so planning takes none of the model's time where the model leaves a core
or an accelerator to do it. A Ctrl-C interrupts who waits for a step, never the step.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from sluice_engine.runner import StepResult
from sluice_engine.scheduler import Plan

Execute = Callable[[], StepResult]


class Prepares(Protocol):
    """A runner: plans are prepared and executed in one order, while at most the one before is being executed."""

    def prepare(self, plan: Plan) -> Execute:
        """The plan as tensors; a call computes it."""


@dataclass(frozen=True, slots=True)
class Flight:
    """A step that was begun at `begun` (seconds of the caller's clock)."""

    plan: Plan
    begun: float
    result: Execute  # waits for it, as often as it is asked


class Pipeline:
    """A runner and its thread. `overlapped`: whether the next step is to be prepared while one runs."""

    def __init__(self, runner: Prepares, overlapped: bool) -> None:
        self.overlapped = overlapped
        self._runner = runner
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")

    def prepare(self, plan: Plan) -> tuple[Plan, Execute]:
        """The plan and its tensors, to begin when its turn comes."""
        return plan, self._runner.prepare(plan)

    def begin(self, prepared: tuple[Plan, Execute], now: float) -> Flight:
        """The step is under way."""
        plan, execute = prepared
        future: Future[StepResult] = self._thread.submit(execute)
        return Flight(plan, now, future.result)

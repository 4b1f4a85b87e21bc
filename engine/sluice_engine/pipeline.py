"""Steps on their way through the runner: with a thread of its own, one runs while the next is planned and prepared.

torch gives up Python's lock while it computes, so planning takes none of the model's time where the model leaves a core
or an accelerator to do it. Without the thread a step runs when its result is asked for.
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
    result: Execute  # waits for it, or computes it now


class Pipeline:
    """A runner and, where steps overlap, its thread."""

    def __init__(self, runner: Prepares, overlapped: bool) -> None:
        self._runner = runner
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model") if overlapped else None

    @property
    def overlapped(self) -> bool:
        """Whether a step that was begun runs by itself."""
        return self._thread is not None

    def prepare(self, plan: Plan) -> tuple[Plan, Execute]:
        """The plan and its tensors, to begin when its turn comes."""
        return plan, self._runner.prepare(plan)

    def begin(self, prepared: tuple[Plan, Execute], now: float) -> Flight:
        """The step is under way."""
        plan, execute = prepared
        if self._thread is None:
            return Flight(plan, now, execute)
        future: Future[StepResult] = self._thread.submit(execute)
        return Flight(plan, now, future.result)

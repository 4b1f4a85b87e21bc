"""Computes the plans of rank 0 on another rank: the next one is prepared while one runs, as on rank 0."""

from collections.abc import Callable
from contextlib import nullcontext

import torch

from sluice_engine.backend.runner import StepResult
from sluice_engine.core.executor import Execute, RunningStep, StepPipeline
from sluice_engine.core.startup import LoadedEngine
from sluice_engine.scheduler import Plan

OnFailure = Callable[[BaseException], None]


class FollowingRunner:
    """A `StepRunner` that reports an error as soon as a step raises it. Nothing reads the results of its steps."""

    def __init__(self, loaded: LoadedEngine, on_failure: OnFailure) -> None:
        self._runner, self._device, self._on_failure = loaded.runner, loaded.model.device, on_failure

    def prepare(self, plan: Plan) -> Execute:
        """Convert the plan to tensors; the returned callable computes it on this rank's device."""
        execute = self._runner.prepare(plan)

        def reported() -> StepResult:
            try:
                with torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext():
                    return execute()
            except BaseException as error:
                self._on_failure(error)
                raise

        return reported


def follow(loaded: LoadedEngine, next_plan: Callable[[], Plan | None], on_failure: OnFailure) -> None:
    """Compute plans in their order until there is none. Raises the error of a step after it was reported."""
    pipeline = StepPipeline(FollowingRunner(loaded, on_failure), overlapped=True, threads=loaded.threads)
    running: RunningStep | None = None
    while (plan := next_plan()) is not None:
        prepared = pipeline.prepare(plan)
        if running is not None:
            running.result()
        running = pipeline.begin(prepared, 0.0)
    if running is not None:
        running.result()

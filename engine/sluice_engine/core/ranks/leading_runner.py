"""The runner of rank 0: it gives each plan to the other ranks before it prepares it itself."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from sluice_engine.backend.runner import StepResult
from sluice_engine.core.executor import StepRunner
from sluice_engine.scheduler import Plan


class OtherRanks(Protocol):
    """The ranks that compute the plans of rank 0 too."""

    def broadcast(self, plan: Plan) -> None:
        """Give a plan to them. Raises RankFailed."""

    def loss_first(self) -> AbstractContextManager[None]:
        """Inside, the loss of a rank is reported before the RankFailed that it causes is raised."""


class LeadingRunner:
    """A `StepRunner` whose plans the other ranks compute too."""

    def __init__(self, runner: StepRunner, others: OtherRanks) -> None:
        self._runner, self._others = runner, others

    def prepare(self, plan: Plan) -> Callable[[], StepResult]:
        """Give the plan to the other ranks, then prepare it. Raises RankFailed."""
        with self._others.loss_first():
            self._others.broadcast(plan)
            execute = self._runner.prepare(plan)

        def executed() -> StepResult:
            with self._others.loss_first():
                return execute()

        return executed

"""The runner of rank 0: it gives each plan to the other ranks before it prepares it itself."""

from collections.abc import Callable

from sluice_engine.backend.runner import StepResult
from sluice_engine.core.executor import StepRunner
from sluice_engine.scheduler import Plan

Broadcast = Callable[[Plan], None]


class LeadingRunner:
    """A `StepRunner` whose plans the other ranks compute too."""

    def __init__(self, runner: StepRunner, broadcast: Broadcast) -> None:
        self._runner, self._broadcast = runner, broadcast

    def prepare(self, plan: Plan) -> Callable[[], StepResult]:
        """Give the plan to the other ranks, then prepare it."""
        self._broadcast(plan)
        return self._runner.prepare(plan)

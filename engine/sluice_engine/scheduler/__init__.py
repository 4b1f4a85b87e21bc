"""The scheduler: plan a step, settle it; no tensors. The engine and the simulator run the same code."""

from sluice_engine.scheduler.config import SchedulerConfig
from sluice_engine.scheduler.fast_forward import advance, steady_steps, steady_work
from sluice_engine.scheduler.load_shedding.rejection import Rejection
from sluice_engine.scheduler.plan import PENDING, Finish, Join, Outcome, Plan, Row
from sluice_engine.scheduler.scheduler import Scheduler
from sluice_engine.scheduler.state import SchedulerState
from sluice_engine.scheduler.transitions import branch, extend

__all__ = [
    "PENDING",
    "Finish",
    "Join",
    "Outcome",
    "Plan",
    "Rejection",
    "Row",
    "Scheduler",
    "SchedulerConfig",
    "SchedulerState",
    "advance",
    "branch",
    "extend",
    "steady_steps",
    "steady_work",
]

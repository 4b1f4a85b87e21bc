"""The scheduler: plan, settle; no tensor in it. The engine and the simulator run this same code."""

from sluice_engine.scheduler.advance import advance, steady_steps, steady_work
from sluice_engine.scheduler.config import SchedulerConfig
from sluice_engine.scheduler.door import Refusal
from sluice_engine.scheduler.plan import PENDING, Finish, Join, Outcome, Plan, Row
from sluice_engine.scheduler.scheduler import Scheduler
from sluice_engine.scheduler.steered import branch, extend

__all__ = [
    "PENDING",
    "Finish",
    "Join",
    "Outcome",
    "Plan",
    "Refusal",
    "Row",
    "Scheduler",
    "SchedulerConfig",
    "advance",
    "branch",
    "extend",
    "steady_steps",
    "steady_work",
]

"""Whether a request can still meet its TTFT deadline by the fitted step-time model, and what a step may take for that.

A request that misses its deadline in any case is served after all requests that can meet theirs, at every step and
under every policy: its delay costs no further miss. Load shedding is work-conserving: it changes the order only, and no
request waits while the engine could compute it.
"""

import math
from typing import Final

from sluice_engine.request import Request
from sluice_engine.scheduler.chunking import LONGEST_STEP
from sluice_engine.scheduler.load_shedding.lateness import YIELD_SECONDS
from sluice_engine.scheduler.state import SchedulerState

NO_DEADLINE: Final = 1e6  # seconds: a target beyond this is none (offline callers have none)


def first_token_due(state: SchedulerState, request: Request) -> float:
    """When the first token is due, seconds of the caller's clock. inf where no deadline counts: the request has delivered
    output or was preempted, it is exempt, its target is endless, the model is not fitted, or `late_last` is off."""
    target = state.limits.current.ttft_target if request.ttft_target is None else request.ttft_target
    if request.delivered or request.preemptions or request.exempt or target >= NO_DEADLINE:
        return math.inf
    if not state.config.late_last or state.fitted_model is None:
        return math.inf
    return request.arrived_at + target


def misses_deadline(state: SchedulerState, request: Request, seconds: float, now: float) -> bool:
    """Whether the first token is late even if the rest of the prompt, `seconds` of work, is computed alone from now on."""
    return now + seconds > first_token_due(state, request)


def yields(state: SchedulerState, request: Request, seconds: float, now: float) -> bool:
    """Whether a running prompt with `seconds` of work left is served after all that can be in time. Once it is overdue for
    longer than YIELD_SECONDS, it has its place in the policy's order again, because it holds blocks."""
    due = first_token_due(state, request)
    return now + seconds > due >= now - YIELD_SECONDS


def longest_step(state: SchedulerState) -> float:
    """Seconds that a step with prompts may take, so that a request that arrives during it can be in time; inf where no
    deadline counts."""
    target = state.limits.current.ttft_target
    return LONGEST_STEP * target if state.config.late_last and target < NO_DEADLINE else math.inf

"""What a step does before it has ended: enough to plan the next one while it runs.

Whatever tokens come of it, each row's tokens will be computed and one more will be known; who thereby has all it may
have leaves its place to others at once. Only what the tokens themselves decide (a stop token, what draft tokens are
worth) has to wait, and behind a step with a deadline, which may compute less, nothing is planned. A token that is not
known yet stands as PENDING, and the runner fills it in.
"""

from typing import TYPE_CHECKING

from sluice_engine.scheduler.plan import PENDING, Plan
from sluice_engine.scheduler.settler import ran_in
from sluice_law.limit import TRUSTED_STEPS
from sluice_law.steptime import StepTimeModel

PLANNING_SECONDS = 0.004  # set aside for planning and preparing a step, so that the next one can begin in time

if TYPE_CHECKING:
    from sluice_engine.scheduler.scheduler import Scheduler


def foreseeable(scheduler: "Scheduler", plan: Plan) -> bool:
    """Whether nobody waits to be told what to say, or shares a block that it will write."""
    return plan.certain and not any(request.forked or request.steered for request in scheduler.running)


def planning_time(plan: Plan, begun: float, model: StepTimeModel) -> float:
    """When the step after one that began at `begun` is best planned: as late as it can be ready in time, so that who
    arrives until then is part of it; at once where nothing is known of how long steps take."""
    if model.steps < TRUSTED_STEPS:
        return begun
    return max(begun, begun + model.predict(plan.whole_work) - PLANNING_SECONDS)


def foresee(scheduler: "Scheduler", plan: Plan) -> None:
    """Book what a step under way does in any case. Once for each step, before it is settled."""
    for row in plan.rows:
        request = scheduler.requests.get(row.request_id)
        if request is None or not ran_in(request, plan.step):
            continue
        request.computed += len(row.tokens)
        if row.samples:
            request.known.append(PENDING)
            request.pending = True
        if request.whole or (row.samples and scheduler.full(request)):
            scheduler.books.retire(request)


def room_ahead(scheduler: "Scheduler") -> bool:
    """Whether there is room for the next token of all that decode, so that nobody has to give way."""
    wanted, size, groups = 0, scheduler.config.block_size, scheduler.config.groups
    for request in scheduler.running:
        wanted += request.computed * groups >= len(request.blocks) * size and request.remaining == 1
    return wanted * groups <= scheduler.pool.available

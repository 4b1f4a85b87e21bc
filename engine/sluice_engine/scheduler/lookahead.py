"""Step modes, and planning the next step while one runs.

Whatever tokens a PLAIN step samples, each row's tokens will be computed and one more will be known; a request that
thereby has all its tokens frees its place at once. So this effect is booked before the step has ended, and the next
one is planned. Only what depends on the sampled tokens (a stop token) waits until the step is settled. A token that is
not known yet stands as PENDING, and the runner fills it in.
"""

from typing import Final

from sluice_engine.scheduler.plan import PENDING, Plan, StepMode
from sluice_engine.scheduler.settle import ran_in
from sluice_engine.scheduler.state import SchedulerState, StepInFlight
from sluice_perfmodel.settings import PERFMODEL
from sluice_perfmodel.step_time import StepTimeModel

# Reserved for planning a step and building its batch, so that it is ready when the step in flight ends.
PLANNING_SECONDS: Final = 0.004


def step_mode(state: SchedulerState) -> StepMode:
    """What the next step may be. Drafts come first: they use what chunks leave, so no chunk may be sized for a deadline.
    Where nothing drafts, a chunk may be bounded by a deadline if the runner can keep one."""
    if state.speculation.is_open(state.next_step):
        return StepMode.DRAFTING
    return StepMode.BOUNDED if state.config.chunk_deadlines else StepMode.PLAIN


def can_overlap(state: SchedulerState, in_flight: StepInFlight, mode: StepMode) -> bool:
    """Whether a step in this mode can be planned while that one runs: its effect is certain, no request lacked blocks in
    it, the next step carries no drafts, and no running request awaits input or has a pending copy-on-write."""
    if in_flight.draft.postponed or mode is StepMode.DRAFTING or not in_flight.plan.certain:
        return False
    return not any(request.forked or request.steered for request in state.running)


def planning_time(plan: Plan, begun: float, model: StepTimeModel) -> float:
    """When to plan the step after one that began at `begun`, seconds: as late as it can be ready in time, so that it
    includes requests that arrive until then; at once while the model is not fitted."""
    if model.steps < PERFMODEL.limit.least_model_steps:
        return begun
    return max(begun, begun + model.predict(plan.whole_work) - PLANNING_SECONDS)


def book_ahead(state: SchedulerState, plan: Plan) -> None:
    """Book the certain effect of the step in flight. At most once for each step, before it is settled."""
    if state.booked_ahead >= plan.step:
        return
    state.booked_ahead = plan.step
    for row in plan.rows:
        request = state.requests.get(row.request_id)
        if request is None or not ran_in(request, plan.step):
            continue
        request.computed += len(row.tokens)
        if row.samples:
            request.known.append(PENDING)
            request.pending = True
        if request.pooling or (row.samples and state.is_complete(request)):
            state.tables.vacate_slot(request)


def room_ahead(state: SchedulerState) -> bool:
    """Whether the pool has room for the next token of all decoding requests, so that none is preempted."""
    wanted, size, groups = 0, state.config.block_size, state.config.groups
    for request in state.running:
        wanted += request.computed * groups >= len(request.blocks) * size and request.remaining == 1
    return wanted * groups <= state.pool.available

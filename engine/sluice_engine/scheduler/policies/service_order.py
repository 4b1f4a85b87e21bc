"""The place of a request in the order of service: its remaining prefill work, and its rank by deadline and policy."""

from sluice_engine.request import Request
from sluice_engine.scheduler.chunking import chunk_context
from sluice_engine.scheduler.load_shedding.deadlines import yields
from sluice_engine.scheduler.policies import PrefillEstimate
from sluice_engine.scheduler.state import SchedulerState
from sluice_perfmodel.step_time import StepWork


def estimate_prefill(state: SchedulerState, request: Request) -> PrefillEstimate:
    """Tokens that the request has to compute, given the prefix cache, and the seconds that they are predicted to take;
    0 seconds while the step-time model is not fitted."""
    running, size, groups = request.slot >= 0, state.config.block_size, state.config.groups
    cached = request.computed if running else len(state.tables.match(request)) // groups * size
    tokens, seconds, work = len(request.known) - cached, 0.0, 0.0
    model = state.fitted_model
    if model is not None:
        seconds = model.predict(StepWork(prefill_tokens=tokens, prefill_context=chunk_context(tokens, cached)))
        work = seconds - model.base
    return PrefillEstimate(tokens, seconds, state.limits.current.ttft_target, work)


def rank(state: SchedulerState, request: Request, now: float) -> tuple[bool, float, float, int]:
    """The rank of a running prompt: whether it yields to those that can be in time, and its place by the policy.
    Comparable with the first four fields of `waiting.head`."""
    policy, estimate = state.policy, estimate_prefill(state, request)
    number = policy.number(request, estimate)
    if policy.patience is not None and number < now and not request.delivered:
        number += policy.patience
    late = yields(state, request, estimate.prefill_seconds, now)
    return late, number, state.counters.served(request.tenant), request.order

"""What a scheduler's shadow queues see of an arriving request."""

from sluice_engine.control.shadow_observer import DecodeProgress, shadow_limits
from sluice_engine.request import Request
from sluice_engine.scheduler.policies import PrefillEstimate
from sluice_engine.scheduler.state import SchedulerState
from sluice_perfmodel.workload import Work


def observe_arrival(state: SchedulerState, request: Request, estimate: PrefillEstimate) -> None:
    """Give the shadow queues a request that is new to the fleet: one that another replica rejected was seen there.

    It arrives when it came to the gateway: one that waited there for room would else show the fleet's own rate, however
    much more comes. O(running requests), for their progress."""
    if request.offered_before:
        return
    uncached = estimate.prefill_tokens
    prompt = Work(1.0, uncached, len(request.known) - uncached)
    limits = shadow_limits(
        state.limits.current, state.pool.num_blocks * state.pool.block_size, state.config.max_num_seqs
    )
    state.shadow.arrive(state.now(request) - request.waited, prompt, limits, state.fitted_model, decode_progress(state))


def decode_progress(state: SchedulerState) -> DecodeProgress:
    """The decoding so far. A cancelled request keeps its tokens: they are exposure without an end. O(running requests)."""
    decoding = [one.computed for one in state.running if one.remaining == 1]
    context = sum(decoding) / len(decoding) if decoding else None
    generated = state.ended_tokens + sum(one.generated for one in state.running)
    return DecodeProgress(generated, state.finished, context)

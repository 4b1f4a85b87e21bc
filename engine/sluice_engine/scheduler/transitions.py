"""Request state transitions: waiting → running → preempted or finished; and forks of steered requests.

A *steered* request (a beam of a search) stops after each token until it is given the next one. Between two tokens it
keeps its blocks and gets no row. A beam that continues in two ways forks; its blocks are shared until one of the two
writes. Where beams that await input hold the blocks that others need, they are preempted.
"""

from sluice_engine.request import Request
from sluice_engine.scheduler.chunking import chunk_context
from sluice_engine.scheduler.load_shedding.exemption import earn_exemption
from sluice_engine.scheduler.policies.service_order import estimate_prefill
from sluice_engine.scheduler.policies.tenants import PROMPT_WEIGHT
from sluice_engine.scheduler.state import SchedulerState
from sluice_perfmodel.settings import PERFMODEL
from sluice_perfmodel.step_time import StepTimeModel, StepWork


def register(state: SchedulerState, request: Request) -> None:
    """Register a new request, the latest of all."""
    request.order = state.arrivals
    state.arrivals += 1
    state.requests[request.request_id] = request


def enqueue(state: SchedulerState, request: Request) -> None:
    """Put the request into the queue."""
    state.tables.hash_known(request)
    state.waiting.push(request, estimate_prefill(state, request))


def start(state: SchedulerState, request: Request, hit: list[int], now: float) -> None:
    """A waiting request begins to run, from the cached blocks in `hit`."""
    state.waiting.remove(request)
    state.tables.start(request, hit)
    if request.swapped_tokens > request.computed:
        state.tables.resume(request)
        state.swap.copy_back(request, len(hit))
    else:
        state.swap.drop(request)
    if request.first_scheduled_at is None:
        request.first_scheduled_at = now
        request.cached_tokens = request.computed
        earn_exemption(state)
        state.counters.charge(request.tenant, PROMPT_WEIGHT * (request.prompt_length - request.computed))


def start_samples(state: SchedulerState, request: Request, now: float) -> list[Request]:
    """Further samples that start with the step that completes the request's prompt, from its blocks; those without a
    place are queued, and find the prompt's full blocks in the prefix cache."""
    started: list[Request] = []
    for sample in state.sample_groups.take(request):
        sample.prompt_counted = True  # with the request's: one prompt, however many samples
        sample.scores_prompt = False  # the request reports the prompt's logprobs
        if len(state.running) < state.places and state.admission.can_start(sample, request.blocks):
            state.tables.fork(request, sample, request.prompt_length)
            state.tables.unsent.discard(sample.slot)  # the row sends its table
            sample.first_scheduled_at, sample.cached_tokens = now, request.cached_tokens
            started.append(sample)
        else:
            enqueue(state, sample)
    return started


def preempt(state: SchedulerState, request: Request, forget: bool = False) -> None:
    """A running request returns to its place in the queue; its full blocks stay cached (unless it must `forget` them).
    The rest is recomputed, or copied out and back where that is predicted to take less time."""
    awaits_input = request.awaits_input
    seconds = recompute_seconds(request, state.model)
    if not forget and seconds is not None and state.swap.saves_time(request, seconds):
        state.swap.copy_out(request)
        state.swaps += 1
    state.tables.release(request, forget)
    request.preemptions += 1
    state.preemptions += 1
    if awaits_input:
        state.preempted_steered[request.request_id] = request
    else:
        enqueue(state, request)


def recompute_seconds(request: Request, model: StepTimeModel | None) -> float | None:
    """Seconds to recompute what the request has computed, in steps that it shares; None without a fitted model."""
    if model is None or model.steps < PERFMODEL.limit.least_model_steps:
        return None
    work = StepWork(prefill_tokens=request.computed, prefill_context=chunk_context(request.computed, 0))
    return model.predict(work) - model.base


def cancel(state: SchedulerState, request_id: str) -> bool:
    """End a request now; its blocks are free as soon as no step writes them. Returns whether it existed."""
    request = state.requests.get(request_id)
    if request is None:
        return False
    if request.started_step is not None:
        end(state, request, forget=False)
        return True
    del state.requests[request_id]
    state.ended_tokens += request.generated
    state.speculation.forget(request_id)
    if state.preempted_steered.pop(request_id, None) is None and not state.sample_groups.discard(request):
        state.waiting.remove(request)
        state.swap.drop(request)
        enqueue_next_sample(state, request)
    return True


def evict(state: SchedulerState, request: Request) -> None:
    """A waiting request that has never run is removed, with all its samples."""
    for sample in state.sample_groups.take(request):
        del state.requests[sample.request_id]
    cancel(state, request.request_id)


def end(state: SchedulerState, request: Request, forget: bool) -> None:
    """A running request is finished; `forget` where what it computed may be wrong."""
    del state.requests[request.request_id]
    state.ended_tokens += request.generated
    state.speculation.forget(request.request_id)
    state.tables.release(request, forget)
    enqueue_next_sample(state, request)


def enqueue_next_sample(state: SchedulerState, request: Request) -> None:
    """Where other samples wait for the prompt of a request that ended, the first of them computes it."""
    successor = state.sample_groups.promote(request)
    if successor is not None:
        successor.prompt_counted = request.prompt_counted
        enqueue(state, successor)


# --- steered requests ------------------------------------------------------------------------------------------


def extend(state: SchedulerState, request_id: str, token: int) -> None:
    """A steered request that awaits input continues with this token. Call between steps."""
    request = state.requests[request_id]
    request.known.append(token)
    if state.preempted_steered.pop(request_id, None) is not None:
        enqueue(state, request)


def branch(state: SchedulerState, request_id: str, child_id: str, token: int) -> None:
    """A new steered request with the tokens of this one and `token`; it shares all blocks.

    Call between steps, before the parent is extended. Raises ValueError where `child_id` exists already.
    """
    if child_id in state.requests:
        raise ValueError(f"request {child_id} already exists")
    parent = state.requests[request_id]
    child = parent.another_sample(child_id, parent.sampling)
    child.known = [*parent.known, token]
    child.hashes = list(parent.hashes)
    child.steered = child.delivered = True
    child.scores_prompt = False
    child.prompt_counted = parent.prompt_counted
    child.first_scheduled_at, child.last_token_at = parent.first_scheduled_at, parent.last_token_at
    register(state, child)
    if parent.slot >= 0 and len(state.running) < state.places:
        state.tables.fork(parent, child, parent.computed)
    else:
        enqueue(state, child)


def preempt_idle(state: SchedulerState) -> bool:
    """Preempt the last of the steered requests that await input, where others could run instead. Returns whether one
    was preempted."""
    idle = [request for request in state.running if request.awaits_input]
    if not idle or not (state.waiting or len(idle) < len(state.running)):
        return False
    preempt(state, idle[-1])
    return True

"""k decode-only steps at once, so that the simulator replays a day in seconds.

While every running request decodes, none can be admitted and none ends, one step is like the next: each request gains a
token, and blocks are taken as they fill. `advance(k)` does that in one call, block growth included.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from sluice_engine.scheduler.load_shedding.deadlines import first_token_due
from sluice_engine.scheduler.plan import Outcome
from sluice_engine.scheduler.policies.tenants import OUTPUT_WEIGHT
from sluice_engine.scheduler.settle import StepSettler
from sluice_engine.scheduler.state import SchedulerState
from sluice_perfmodel.step_time import StepWork


def steady_steps(state: SchedulerState, until: int | None = None) -> int:
    """The most steps that `advance` may take now: 0 unless all that runs decodes and nothing waiting can start; `until`
    where the caller knows that no more are wanted, because a stop token comes in the last of them.

    No request is preempted and none ends before the last of them. A waiting request that does not fit keeps waiting,
    because available blocks only become fewer (provided that generated tokens do not extend its own prefix); one that
    the predicted peak excludes is tested again before the peak can have fallen far enough.
    """
    running, longest, groups = state.running, state.config.max_model_length, state.config.groups
    most = longest if until is None else until
    for request in reversed(running):  # the newest first: it is the likeliest to have a prompt to compute
        known = len(request.known)
        if known - request.computed != 1 or request.forked:
            return 0
        most = min(most, longest - known, request.prompt_length + request.max_tokens - known)
    if not running or most <= 0:
        return 0
    if state.waiting and len(running) < state.places:
        if state.policy.patience is not None or state.policy.by_tenant:
            return 0  # the head of the queue changes as time passes and tokens are delivered
        head = state.waiting.head(now=0.0)
        if head is None or (not head.late and first_token_due(state, head.request) < math.inf):
            return 0  # another one is the head as soon as this one can no longer be in time
        excluded = state.admission.steps_excluded(head.request, state.tables.match(head.request))
        most = most if excluded is None else min(most, excluded)
        if most == 0:
            return 0
    window, size = state.config.window, state.config.block_size
    if window is not None:  # the step in which a block leaves a window is the last one
        most = min(most, *((r.freed_leading + 1) * size + window - 1 - r.computed for r in running))
    if len(running) * (most // size + 1) * groups <= state.pool.available:  # no need to count each
        return most
    if _blocks_wanted(state, most) <= state.pool.available:
        return most
    low, high = 0, most  # growth is monotone in k: bisect for the last k that fits
    while high - low > 1:
        middle = (low + high) // 2
        if _blocks_wanted(state, middle) <= state.pool.available:
            low = middle
        else:
            high = middle
    return low


def steady_work(state: SchedulerState) -> StepWork:
    """The first such step's work; each later one reads `sequences` more KV tokens."""
    return StepWork(sequences=len(state.running), kv_tokens=sum(request.computed + 1 for request in state.running))


def advance(
    state: SchedulerState,
    ends_at: Sequence[float],
    token: int = 0,
    last: Mapping[str, int] = MappingProxyType({}),
) -> list[Outcome]:
    """Take `len(ends_at)` ≤ `steady_steps` decode-only steps, step i ending at `ends_at[i]`, each sampling `token` for
    every request; in the last one the requests in `last` sample another. Returns the last step's outcomes. Raises ValueError
    for more steps than are steady."""
    count = len(ends_at)
    if not 0 < count <= steady_steps(state, count):
        raise ValueError(f"{count} steps asked, {steady_steps(state)} are steady")
    if count > 1:
        _decode_before_last(state, count - 1, ends_at[-2], token)
    _grow(state, count)
    return _decode_last(state, count, ends_at[-1], token, last)


def _decode_before_last(state: SchedulerState, steps: int, now: float, token: int) -> None:
    """`steps` steps in which no request ends, without their blocks."""
    tokens, charges = [token] * steps, dict[str, int]()
    for request in state.running:
        request.known += tokens
        request.computed += steps
        request.last_token_at, request.delivered = now, True
        charges[request.tenant] = charges.get(request.tenant, 0) + steps
    for tenant, count in charges.items():
        state.counters.charge(tenant, OUTPUT_WEIGHT * count)


def _grow(state: SchedulerState, count: int) -> None:
    """The blocks of `count` steps, all but the last of which were decoded. They are taken and indexed in the order in
    which single steps would: of two with equal content the one that was full first is found, unless it was evicted by
    then."""
    size, groups = state.config.block_size, state.config.groups
    before, shares = count - 1, state.config.prefix_cache and count > 1
    events: list[tuple[int, bool, int, int]] = []  # (step, whether it fills the block, place in running, logical block)
    for place, request in enumerate(state.running):
        computed, table = request.computed, len(request.blocks) // groups
        started = computed - before
        if computed >= table * size:
            taken = range(table, computed // size + 1)
            events += [(logical * size - started + 1, False, place, logical) for logical in taken]
        if shares and computed // size > started // size:
            full = range(started // size, computed // size)
            events += [((logical + 1) * size - started, True, place, logical) for logical in full]
    for _, became_full, place, logical in sorted(events):
        request = state.running[place]
        if became_full:
            state.tables.index_logical_block(request, logical)
        else:
            request.blocks += state.pool.allocate(groups)


def _decode_last(state: SchedulerState, steps: int, now: float, token: int, last: Mapping[str, int]) -> list[Outcome]:
    """The last of `steps` steps, after the others: complete requests end here."""
    state.tables.planned = state.tables.settled = state.tables.planned + steps
    settler = StepSettler(state, now)
    for request in list(state.running):
        end, sampled = request.computed + 1, last.get(request.request_id, token)
        if not settler.continue_output(request, end, sampled):
            settler.computed(request, end, sampled)
    settler.charge()
    return settler.outcomes


def _blocks_wanted(state: SchedulerState, steps: int) -> int:
    wanted = state.tables.blocks_for
    return sum(wanted(r.computed + steps) - len(r.blocks) for r in state.running)

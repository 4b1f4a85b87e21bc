"""Draft tokens of a planned step, within what it leaves over: blocks of the pool, tokens of its budget, seconds.

Drafts may be rejected, so they come last: they never preempt, never displace a prompt's chunk, and never push a step
past an inter-token target that it would meet without them.
"""

import math
from typing import Final

from sluice_engine.request import Request
from sluice_engine.scheduler.chunking import chunk_context, tightest
from sluice_engine.scheduler.state import SchedulerState
from sluice_engine.scheduler.step_draft import StepDraft
from sluice_engine.speculation.controller import MAX_DRAFT_TOKENS, Price

MAX_ADDED_TIME: Final = 4.0  # the most time that drafts may add, in times of the step without them
MAX_ADDED_TIME_WHEN_LATE: Final = 0.5  # the same where every target is missed already and none bounds the drafts


def add_drafts(state: SchedulerState, step: StepDraft, tokens: int) -> None:
    """Lengthen decoding rows of `step` by drafts, `tokens` at most in all."""
    speculation = state.speculation
    price, seconds = None, math.inf
    if speculation.mode == "auto":
        price, seconds = _price(state, step)
        if price is None:
            return
    places = {
        row.request_id: place
        for place, row in enumerate(step.rows)
        if len(row.tokens) == 1 and row.samples and not row.forks
    }
    asked = not speculation.is_probing(state.next_step)
    decoding = [request for request_id in places if not (request := state.requests[request_id]).steered]
    for request in speculation.candidates(state.next_step, decoding):
        cost = 0.0 if price is None else price.cost(request.computed)
        most = min(tokens, _room(state, request))
        if cost > 0.0:  # one request may always probe, or a lower cost of drafts would never be measured
            most = min(most, max(int(seconds / cost), 0 if asked else 1))
        asked = True
        draft = speculation.draft(request, max(0, most), price)
        if draft:
            tokens -= len(draft)
            seconds -= cost * len(draft)
            _lengthen(state, step, places[request.request_id], draft)


def _price(state: SchedulerState, step: StepDraft) -> tuple[Price | None, float]:
    """The price by the step-time model, None while that is not fitted; and the seconds that all drafts may add."""
    model, sampling = state.fitted_model, sum(row.samples for row in step.rows)
    if model is None or not sampling:
        return None, 0.0
    cost = state.speculation.cost
    plain, tail = cost.level() * model.predict(step.work), state.correction.tail()
    target = tightest([target / tail for target in step.itl_targets], plain, (1 + MAX_ADDED_TIME_WHEN_LATE) * plain)
    price = Price(plain / sampling, model.prefill_token + cost.surcharge(model), model.prefill_context)
    return price, min(MAX_ADDED_TIME * plain, target - plain)


def _room(state: SchedulerState, request: Request) -> int:
    """Draft tokens that the request could use and that the pool holds without a preemption."""
    pool, config = state.pool, state.config
    wanted = min(
        MAX_DRAFT_TOKENS,
        request.max_tokens - request.generated - 1,
        config.max_model_length - len(request.known) - 1,
    )
    spare = min(pool.available, int(state.limits.current.kv_watermark * pool.num_blocks) - pool.held)
    logical_blocks = (len(request.blocks) + max(0, spare)) // config.groups
    return min(wanted, logical_blocks * pool.block_size - len(request.known))


def _lengthen(state: SchedulerState, step: StepDraft, place: int, draft: tuple[int, ...]) -> None:
    row = step.rows[place]
    request = state.requests[row.request_id]
    state.tables.grow(request, len(request.known) + len(draft))
    step.rows[place] = row._replace(
        tokens=row.tokens + draft, new_blocks=tuple(request.blocks[row.first_block :]), drafts=len(draft)
    )
    step.draft_tokens += len(draft)
    step.draft_context += chunk_context(len(draft), len(request.known))

"""Draft tokens for a planned step, out of what it leaves over: places in the pool, tokens of its budget, seconds.

Drafts are a bet, so they come last: they never preempt, never keep a prompt's chunk out, and never push a step past an
inter-token target that it would meet without them.
"""

import math
from typing import TYPE_CHECKING

from sluice_engine.request import Request
from sluice_engine.scheduler.budget import chunk_context, tightest
from sluice_engine.scheduler.speculation import MOST, Price
from sluice_law.limit import TRUSTED_STEPS

if TYPE_CHECKING:
    from sluice_engine.scheduler.planner import StepPlanner
    from sluice_engine.scheduler.scheduler import Scheduler

STRETCH = 4.0  # times the step's own time, which drafts may add at most
STRETCH_WHEN_LATE = 0.5  # the same where every target is missed already: then none of them bounds the drafts


def add_drafts(scheduler: "Scheduler", step: "StepPlanner", tokens: int) -> None:
    """Lengthen decoding rows of `step` by drafts, `tokens` at most in all."""
    speculation = scheduler.speculation
    price, seconds = None, math.inf
    if speculation.mode == "auto":
        price, seconds = _price(scheduler, step)
        if price is None:
            return
    places = {
        row.request_id: place
        for place, row in enumerate(step.rows)
        if len(row.tokens) == 1 and row.samples and not row.twins
    }
    asked = not speculation.probes(scheduler.steps + 1)
    decoding = [request for request_id in places if not (request := scheduler.requests[request_id]).steered]
    for request in speculation.candidates(scheduler.steps + 1, decoding):
        cost = 0.0 if price is None else price.cost(request.computed)
        most = min(tokens, _room(scheduler, request))
        if cost > 0.0:  # one is always allowed to ask, else nobody would learn that drafts have become cheaper
            most = min(most, max(int(seconds / cost), 0 if asked else 1))
        asked = True
        draft = speculation.draft(request, max(0, most), price)
        if draft:
            tokens -= len(draft)
            seconds -= cost * len(draft)
            _lengthen(scheduler, step, places[request.request_id], draft)


def _price(scheduler: "Scheduler", step: "StepPlanner") -> tuple[Price | None, float]:
    """The price by the step-time model, None while that is not trusted; and the seconds that all drafts may add."""
    model, yielded = scheduler.model, sum(row.samples for row in step.rows)
    if model is None or model.steps < TRUSTED_STEPS or not yielded:
        return None, 0.0
    cost = scheduler.speculation.cost
    plain, tail = cost.level() * model.predict(step.work), scheduler.correction.tail()
    target = tightest([target / tail for target in step.itl_targets], plain, (1 + STRETCH_WHEN_LATE) * plain)
    price = Price(plain / yielded, model.prefill_token + cost.surcharge(model), model.prefill_context)
    return price, min(STRETCH * plain, target - plain)


def _room(scheduler: "Scheduler", request: Request) -> int:
    """Draft tokens that the request could use, and the pool could hold without anybody giving way."""
    books, bounds = scheduler.books, scheduler.limits.bounds
    wanted = min(
        MOST,
        request.max_tokens - request.generated - 1,
        scheduler.config.max_model_length - len(request.known) - 1,
    )
    spare = min(books.pool.available, int(bounds.kv_watermark * books.pool.num_blocks) - books.pool.held)
    stretches = (len(request.blocks) + max(0, spare)) // scheduler.config.groups
    return min(wanted, stretches * books.pool.block_size - len(request.known))


def _lengthen(scheduler: "Scheduler", step: "StepPlanner", place: int, draft: tuple[int, ...]) -> None:
    row = step.rows[place]
    request = scheduler.requests[row.request_id]
    scheduler.books.grow(request, len(request.known) + len(draft))
    step.rows[place] = row._replace(
        tokens=row.tokens + draft, new_blocks=tuple(request.blocks[row.first_block :]), drafts=len(draft)
    )
    step.draft_tokens += len(draft)
    step.draft_context += chunk_context(len(draft), len(request.known))

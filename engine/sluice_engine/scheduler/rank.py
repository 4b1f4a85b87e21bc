"""Where a request stands: what its prompt has left to compute, and who goes before it."""

from typing import TYPE_CHECKING

from sluice_engine.request import Request
from sluice_engine.scheduler.budget import chunk_context
from sluice_engine.scheduler.policies import Outlook
from sluice_law.limit import TRUSTED_STEPS
from sluice_law.steptime import StepWork

if TYPE_CHECKING:
    from sluice_engine.scheduler.scheduler import Scheduler


def outlook_of(scheduler: "Scheduler", request: Request) -> Outlook:
    """Tokens that the request has to compute, as the prefix cache stands, and the seconds that they are predicted to
    take; 0 seconds while no model is trusted."""
    running, size, groups = request.slot >= 0, scheduler.config.block_size, scheduler.config.groups
    cached = request.computed if running else len(scheduler.books.match(request)) // groups * size
    tokens, seconds, work = len(request.known) - cached, 0.0, 0.0
    if scheduler.model is not None and scheduler.model.steps >= TRUSTED_STEPS:
        seconds = scheduler.model.predict(
            StepWork(prefill_tokens=tokens, prefill_context=chunk_context(tokens, cached))
        )
        work = seconds - scheduler.model.base
    return Outlook(tokens, seconds, scheduler.limits.bounds.ttft_target, work)


def rank(scheduler: "Scheduler", request: Request, now: float) -> tuple[bool, float, float, int]:
    """Where a running prompt stands among waiting requests: comparable with the head of `waiting` (its first four
    fields)."""
    policy = scheduler.policy
    number = policy.number(request, outlook_of(scheduler, request))
    if policy.patience is not None and number < now and not request.delivered:
        number += policy.patience
    return False, number, scheduler.counters.served(request.tenant), request.order

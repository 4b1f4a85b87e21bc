"""Who is refused at the door, before any work, and with which predicted wait.

A full queue refuses the least important: the newcomer, or one that waits and makes way for it (`displacing.py`).
Besides: a request whose deadline for the first token cannot be met. Only one that came with an explicit
`slo` is refused for that. Such a client has said that a late answer is worth less to it than a quick no, and a retry
elsewhere may still make it; the server-wide target says nothing of the kind: it steers limits and replicas, and a
client that named no deadline would rather wait than fail. The prediction errs to the quick side (cached prefixes
count, memory is not waited for, nobody arrives after), so a refusal means that the deadline is lost, not at risk.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sluice_engine.admission import predicted_wait
from sluice_engine.request import Request
from sluice_engine.scheduler.budget import MINIMUM_CHUNK, tightest
from sluice_engine.scheduler.config import SchedulerConfig
from sluice_engine.scheduler.policies import Outlook
from sluice_engine.scheduler.tenants import OUTPUT_WEIGHT, PROMPT_WEIGHT
from sluice_law.limit import TRUSTED_STEPS
from sluice_law.steptime import StepTimeModel, StepWork

if TYPE_CHECKING:
    from sluice_engine.scheduler.scheduler import Scheduler

RefusalReason = Literal["draining", "queue_full", "displaced", "slo_unreachable"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Who was not taken or had to leave before it began, why, and the predicted wait in seconds."""

    request_id: str
    reason: RefusalReason
    retry_after: float
    message: str


def check_possible(request: Request, config: SchedulerConfig) -> None:
    """Raises ValueError for a request that could never run."""
    if not request.known or (request.max_tokens < 1 and not request.whole):
        raise ValueError("a request needs a prompt of one token or more and max_tokens of 1 or more")
    if request.whole:
        if len(request.known) > config.max_model_length:
            raise ValueError(
                f"the text has {len(request.known)} tokens and must be computed whole; this model takes at most "
                f"{config.max_model_length}"
            )
        return
    if len(request.known) >= config.max_model_length:
        raise ValueError(
            f"the prompt has {len(request.known)} tokens; with one to generate, this model takes at most "
            f"{config.max_model_length - 1}"
        )


def closed(scheduler: "Scheduler", request: Request) -> Refusal | None:
    """Why no request at all can be taken now; None when the door is open."""
    if not scheduler.draining:
        return None
    return Refusal(request.request_id, "draining", 1.0, "this replica is draining; another one takes new requests")


def crowded_out(scheduler: "Scheduler", request: Request, weight: float) -> Refusal | None:
    """Who is refused if this request comes: itself, or one that waits. None while there is room for both."""
    waiting = len(scheduler.waiting)
    if waiting < scheduler.limits.bounds.max_queue + max(0, scheduler.places - len(scheduler.running)):
        return None
    wait, full = scheduler.predicted_wait(), f"the queue holds {waiting} requests, its limit"
    leaves = scheduler.waiting.displaceable.giving_way(request.priority, request.tenant, weight)
    if leaves is None:
        return Refusal(request.request_id, "queue_full", wait, full)
    message = (
        f"{full}, and a request of higher priority or of a tenant below its share has come; this one had not begun"
    )
    return Refusal(leaves, "displaced", wait, message)


def weight_of(scheduler: "Scheduler", request: Request, answers: int) -> float:
    """Weighted tokens that so many answers to the request's prompt will be charged: the prompt, and outputs as long as
    the mean so far."""
    output = min(float(request.max_tokens), scheduler.mean_output or 0.0)
    return PROMPT_WEIGHT * request.prompt_length + OUTPUT_WEIGHT * answers * output


def too_late(
    scheduler: "Scheduler", request: Request, outlook: Outlook, without: Request | None = None
) -> Refusal | None:
    """Why this request is not worth taking: its own deadline cannot be met, even `without` one that makes way for it.
    None when it may be, or it has none."""
    if request.ttft_target is None:
        return None
    first_token = predicted_ttft(scheduler, request, outlook, without)
    if first_token is None or first_token <= request.ttft_target:
        return None
    return Refusal(
        request.request_id,
        "slo_unreachable",
        first_token,
        f"the first token is predicted after {first_token:.2f} s, the request's deadline is {request.ttft_target:g} s",
    )


def predicted_ttft(
    scheduler: "Scheduler", request: Request, outlook: Outlook, without: Request | None = None
) -> float | None:
    """Seconds to the first token of a request that came now; None without a trusted model.

    Two waits, the longer of which counts: for a place (Little's law) and for the prompts that are served before.
    """
    model = scheduler.model
    if model is None or model.steps < TRUSTED_STEPS:
        return None
    ahead, queued_tokens = scheduler.waiting.before(request, scheduler.policy.number(request, outlook), without)
    begun = sum(other.remaining for other in scheduler.running if other.remaining > 1)
    tokens = begun + queued_tokens + outlook.prefill_tokens
    place = 0.0
    if scheduler.residence is not None:
        place = predicted_wait(ahead, len(scheduler.running), scheduler.limits.concurrency, scheduler.residence)
    return max(place + outlook.prefill_seconds, tokens / _prefill_rate(scheduler, model))


def _prefill_rate(scheduler: "Scheduler", model: StepTimeModel) -> float:
    """Prompt tokens per second that the streams now running leave room for."""
    most = scheduler.limits.bounds.max_batched_tokens
    decoding = [request for request in scheduler.running if request.remaining == 1]
    per_token = max(model.prefill_token, 1e-9)
    if not decoding:
        return most / (model.base + per_token * most)
    beside = model.predict(StepWork(sequences=len(decoding), kv_tokens=sum(r.computed for r in decoding)))
    targets = {scheduler.itl_target(request) for request in decoding}
    itl = tightest(targets, beside, scheduler.limits.bounds.itl_target)
    chunk = min(max((itl - beside) / per_token, MINIMUM_CHUNK), most)
    return chunk / (beside + per_token * chunk)

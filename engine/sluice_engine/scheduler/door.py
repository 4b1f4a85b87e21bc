"""Who is refused at the door, before any work, and with which predicted wait.

A full queue refuses the least important: the newcomer, or one that waits and makes way for it (`displacing.py`).
Besides: a request whose deadline for the first token cannot be met. Only one that came with an explicit
`slo` is refused for that. Such a client has said that a late answer is worth less to it than a quick no, and a retry
elsewhere may still make it; the server-wide target says nothing of the kind: it steers limits and replicas, and a
client that named no deadline would rather wait than fail. The prediction errs to the quick side (cached prefixes
count, memory is not waited for, nobody arrives after), so a refusal means that the deadline is lost, not at risk.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from sluice_engine.admission import predicted_wait
from sluice_engine.request import Request
from sluice_engine.scheduler.budget import tightest
from sluice_engine.scheduler.config import SchedulerConfig
from sluice_engine.scheduler.lateness import Candidate, Pace, beyond, full_step, given_up
from sluice_engine.scheduler.policies import Outlook
from sluice_engine.scheduler.rank import outlook_of
from sluice_engine.scheduler.tenants import OUTPUT_WEIGHT, PROMPT_WEIGHT, unavoidable_gap
from sluice_engine.scheduler.waiting import Entry
from sluice_law.limit import TRUSTED_STEPS
from sluice_law.steptime import StepWork

if TYPE_CHECKING:
    from sluice_engine.scheduler.scheduler import Scheduler

NO_DEADLINE: Final = 1e6  # seconds: a target beyond this is none (offline callers have none)

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


def crowded_out(scheduler: "Scheduler", request: Request, weight: float, in_time: bool) -> Refusal | None:
    """Who is refused if this request comes: itself, or one that waits. None while there is room for both, and nobody
    has been late for longer than a full queue takes."""
    waiting, displaceable = len(scheduler.waiting), scheduler.waiting.displaceable
    overdue = scheduler.waiting.first_given_up() if in_time else None
    if overdue is not None and scheduler.now(request) - overdue.arrived_at > _patience(scheduler):
        leaves = displaceable.outstaying(overdue.request_id, overdue.priority, request.priority)
        why = "requests that cannot be answered in time any more have waited for as long as a full queue takes"
    elif waiting >= scheduler.limits.bounds.max_queue + max(0, scheduler.places - len(scheduler.running)):
        leaves = displaceable.giving_way((request.priority, in_time), request.tenant, weight)
        why = f"the queue holds {waiting} requests, its limit"
    else:
        return None
    wait = last_start(scheduler)
    if leaves is None:
        return Refusal(request.request_id, "queue_full", wait, why)
    message = (
        f"{why}, and a request has come that is of higher priority, can still be answered in time, or is of a tenant "
        "below its share; this one had not begun"
    )
    return Refusal(leaves, "displaced", wait, message)


def _patience(scheduler: "Scheduler") -> float:
    """Seconds for which who is late lets others go first: as long as the last in a full queue would wait."""
    bounds, places = scheduler.limits.bounds, scheduler.places
    wait = predicted_wait(bounds.max_queue, places, places, _residence(scheduler))
    return max(wait, bounds.ttft_target)


def last_start(scheduler: "Scheduler") -> float:
    """Seconds until a request that came now and let everybody else go first would start."""
    waiting, running, limit = len(scheduler.waiting), len(scheduler.running), scheduler.limits.concurrency
    pace, place = pace_of(scheduler), predicted_wait(waiting, running, limit, _residence(scheduler))
    return place if pace is None else max(place, (pace.begun + scheduler.waiting.work) / pace.share)


def _residence(scheduler: "Scheduler") -> float:
    """Mean seconds that a request runs; the time to first token while none has ended."""
    return scheduler.limits.bounds.ttft_target if scheduler.residence is None else scheduler.residence


def weight_of(scheduler: "Scheduler", request: Request, answers: int) -> float:
    """Weighted tokens that so many answers to the request's prompt will be charged: the prompt, and outputs as long as
    the mean so far."""
    output = min(float(request.max_tokens), scheduler.mean_output or 0.0)
    return PROMPT_WEIGHT * request.prompt_length + OUTPUT_WEIGHT * answers * output


@dataclass(frozen=True, slots=True)
class Prospect:
    """What the queue's forecast says when a request comes."""

    first_token: float | None  # seconds until its own, in its turn; None without a trusted model
    in_time: bool = True  # whether it can meet its deadline, the server's where it names none
    given_up: tuple[Request, ...] = ()  # who waits and makes way for it


def prospect(scheduler: "Scheduler", request: Request, outlook: Outlook) -> Prospect:
    """Who is served in time if this request comes now, and who is given up. O(n log n) for n that can be in time; where
    nobody has a deadline that is not asked: ten thousand prompts at once may all be."""
    endless = request.ttft_target is None and scheduler.limits.bounds.ttft_target >= NO_DEADLINE
    pace = None if endless or not scheduler.config.late_last else pace_of(scheduler)
    if pace is None:
        return Prospect(None)
    now = scheduler.now(request)
    newcomer = scheduler.waiting.entry(request, outlook)
    line = scheduler.waiting.line(newcomer)
    place = line.index(newcomer)
    first_token = pace.first_token(place, sum(entry.work for entry in line[: place + 1]), newcomer.work)
    gone = given_up(_candidates(scheduler, line, now), pace)
    return Prospect(first_token, place not in gone, tuple(line[index].request for index in gone if index != place))


def _candidates(scheduler: "Scheduler", entries: Sequence[Entry], now: float) -> list[Candidate]:
    config, displaceable = scheduler.config, scheduler.waiting.displaceable
    standings = {tenant: displaceable.standing(tenant) for tenant in {entry.request.tenant for entry in entries}}
    pool = config.num_blocks * config.block_size // config.groups
    ahead = beyond(standings, unavoidable_gap(config.max_model_length, pool))
    return [_candidate(scheduler, entry, now, ahead[entry.request.tenant]) for entry in entries]


def _candidate(scheduler: "Scheduler", entry: Entry, now: float, standing: float) -> Candidate:
    request, target = entry.request, scheduler.limits.bounds.ttft_target
    if request.first_scheduled_at is not None:
        return Candidate(entry.work, math.inf, request.priority)
    deadline = request.arrived_at + (target if request.ttft_target is None else request.ttft_target) - now
    return Candidate(entry.work, deadline, request.priority, standing)


def too_late(request: Request, seen: Prospect) -> Refusal | None:
    """Why this request is not worth taking: the deadline that it names cannot be met. None when it may be, or it names
    none."""
    if request.ttft_target is None or seen.in_time or seen.first_token is None:
        return None
    return Refusal(
        request.request_id,
        "slo_unreachable",
        seen.first_token,
        f"the first token is predicted after {seen.first_token:.2f} s, the request's deadline is "
        f"{request.ttft_target:g} s",
    )


def pace_of(scheduler: "Scheduler") -> Pace | None:
    """How the queue moves now; None without a trusted model. The residence is the mean time that a request runs."""
    model, bounds = scheduler.model, scheduler.limits.bounds
    if model is None or model.steps < TRUSTED_STEPS:
        return None
    begun = sum(outlook_of(scheduler, other).prefill_work for other in scheduler.running if other.remaining > 1)
    decoding = [request for request in scheduler.running if request.remaining == 1]
    work = StepWork(sequences=len(decoding), kv_tokens=sum(request.computed for request in decoding))
    targets = {scheduler.itl_target(request) for request in decoding}
    itl = tightest(targets, model.predict(work), bounds.itl_target)
    prompts, beside = full_step(model, work, itl, bounds.max_batched_tokens)
    return Pace(
        begun=begun,
        share=prompts / (prompts + beside),
        free=max(0, scheduler.limits.concurrency - len(scheduler.running)),
        between=0.0 if scheduler.residence is None else scheduler.residence / max(1, scheduler.limits.concurrency),
        step=prompts + beside if scheduler.running else 0.0,
    )

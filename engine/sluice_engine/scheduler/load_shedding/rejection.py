"""Load shedding: which requests are rejected on arrival or evicted from the queue, and the predicted wait.

A full queue rejects the least important request: the newcomer, or a waiting one that is evicted for it (`eviction`). A
request whose TTFT deadline cannot be met is rejected too, but only if it has an explicit `slo`: then a rejection that
allows a retry elsewhere is more useful to the client than a late output. The server-wide target steers limits and
replicas and rejects no request. The prediction is a lower bound (cached prefixes count, there is no wait for memory,
none arrives later), so a rejection means that the deadline is missed, not at risk.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from sluice_engine.control.limit_controller import predicted_wait
from sluice_engine.request import Request
from sluice_engine.scheduler.chunking import tightest
from sluice_engine.scheduler.config import SchedulerConfig
from sluice_engine.scheduler.load_shedding.deadlines import NO_DEADLINE, longest_step, yields
from sluice_engine.scheduler.load_shedding.exemption import overdue_request
from sluice_engine.scheduler.load_shedding.lateness import Candidate, ServiceRate, demoted, excess, full_step
from sluice_engine.scheduler.load_shedding.ordered_queue import Entry
from sluice_engine.scheduler.policies import PrefillEstimate
from sluice_engine.scheduler.policies.service_order import estimate_prefill
from sluice_engine.scheduler.policies.tenants import OUTPUT_WEIGHT, PROMPT_WEIGHT, unavoidable_gap
from sluice_engine.scheduler.state import SchedulerState
from sluice_perfmodel.step_time import StepWork

RejectionReason = Literal["draining", "queue_full", "displaced", "slo_unreachable"]


@dataclass(frozen=True, slots=True)
class Rejection:
    """A request that was rejected, or evicted before it ran: the reason, and the predicted wait in seconds."""

    request_id: str
    reason: RejectionReason
    retry_after: float
    message: str


def check_possible(request: Request, config: SchedulerConfig) -> None:
    """Raises ValueError for a request that could never run."""
    if not request.known or (request.max_tokens < 1 and not request.pooling):
        raise ValueError("a request needs a prompt of one token or more and max_tokens of 1 or more")
    if request.pooling:
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


def reject_while_draining(state: SchedulerState, request: Request) -> Rejection | None:
    """The rejection of every request while the replica drains; None otherwise."""
    if not state.draining:
        return None
    return Rejection(request.request_id, "draining", 1.0, "this replica is draining; another one takes new requests")


def reject_or_evict(state: SchedulerState, request: Request, weight: float, in_time: bool) -> Rejection | None:
    """The rejection of the newcomer, or the eviction of a waiting request for it. None while the queue has room for both,
    and no request has been late for longer than a full queue takes."""
    waiting, evictable = len(state.waiting), state.waiting.evictable
    overdue = overdue_request(state, state.now(request)) if in_time else None
    # Behind all others the newcomer would be in time, too: the overdue request is served soon.
    if overdue is not None and wait_behind_all(state) > state.limits.current.ttft_target:
        evicted = evictable.for_overdue(overdue.request_id, overdue.priority, request.priority)
        why = "requests that cannot meet their TTFT target any more have waited for as long as a full queue takes"
    elif waiting >= state.limits.current.max_queue + max(0, state.places - len(state.running)):
        evicted = evictable.for_newcomer((request.priority, in_time), request.tenant, weight)
        why = f"the queue holds {waiting} requests, its limit"
    else:
        return None
    wait = wait_behind_all(state)
    if evicted is None:
        return Rejection(request.request_id, "queue_full", wait, why)
    message = (
        f"{why}, and a newcomer has a higher priority, can still meet its TTFT target, or is of a tenant below its share; "
        "this one had not run"
    )
    return Rejection(evicted, "displaced", wait, message)


def wait_behind_all(state: SchedulerState) -> float:
    """Seconds until a request would start that arrives now and is served after all others."""
    waiting, running, limit = len(state.waiting), len(state.running), state.limits.concurrency
    rate, place = service_rate(state, state.clock), predicted_wait(waiting, running, limit, state.expected_residence)
    if rate is None:
        return place
    work = sum(running_work(state, state.clock)) + state.waiting.work
    return max(place, work / rate.prefill_share)


def weight_of(state: SchedulerState, request: Request, samples: int) -> float:
    """Weighted tokens that `samples` outputs of the request's prompt will be charged: the prompt, and outputs of the mean
    length so far."""
    output = min(float(request.max_tokens), state.mean_output or 0.0)
    return PROMPT_WEIGHT * request.prompt_length + OUTPUT_WEIGHT * samples * output


@dataclass(frozen=True, slots=True)
class QueueForecast:
    """The queue's forecast for a new request."""

    first_token: float | None  # seconds until its own, in its turn; None without a fitted model
    in_time: bool = True  # whether it can meet its deadline, the server's where it has none
    demoted: tuple[Request, ...] = ()  # waiting requests that are served after it for that


def forecast_queue(state: SchedulerState, request: Request, estimate: PrefillEstimate) -> QueueForecast:
    """Which requests meet their deadline if this one is queued now, and which are demoted. With n waiting requests that can
    meet theirs: amortised O(√n) while they have slack, O(n log n) where one may have to be demoted; O(1) where no request
    has a deadline. O(running requests) in any case, for the service rate."""
    endless = request.ttft_target is None and state.limits.current.ttft_target >= NO_DEADLINE
    now = state.now(request)
    rate = None if endless or not state.config.late_last else service_rate(state, now)
    if rate is None:
        return QueueForecast(None)
    newcomer = state.waiting.entry(request, estimate)
    others = state.waiting.in_time_with(request)
    wait = others.wait_if_all_in_time(newcomer, rate, now, state.limits.current.ttft_target)
    if wait is not None:
        return QueueForecast(wait)
    line = others.with_newcomer(newcomer)
    place = bisect_left(line, newcomer)
    first_token = rate.first_token(place, sum(entry.work for entry in line[: place + 1]), newcomer.work)
    late = demoted(_candidates(state, line, now), rate)
    return QueueForecast(first_token, place not in late, tuple(line[index].request for index in late if index != place))


def _candidates(state: SchedulerState, entries: Sequence[Entry], now: float) -> list[Candidate]:
    config, evictable = state.config, state.waiting.evictable
    usages = {tenant: evictable.usage(tenant) for tenant in {entry.request.tenant for entry in entries}}
    pool = config.num_blocks * config.block_size // config.groups
    lightest = min(map(state.counters.weight_of, usages), default=1.0)  # one request adds the most to its counter
    ahead = excess(usages, unavoidable_gap(config.max_model_length, pool) / lightest)
    return [_candidate(state, entry, now, ahead[entry.request.tenant]) for entry in entries]


def _candidate(state: SchedulerState, entry: Entry, now: float, excess_usage: float) -> Candidate:
    request, deadline = entry.request, entry.deadline(state.limits.current.ttft_target)
    return Candidate(entry.work, deadline - now, request.priority, excess_usage)


def reject_unreachable(request: Request, forecast: QueueForecast) -> Rejection | None:
    """The rejection of a request whose explicit deadline cannot be met. None where it may be, or the request has none."""
    if request.ttft_target is None or forecast.in_time or forecast.first_token is None:
        return None
    return Rejection(
        request.request_id,
        "slo_unreachable",
        forecast.first_token,
        f"the first token is predicted after {forecast.first_token:.2f} s, the request's deadline is "
        f"{request.ttft_target:g} s",
    )


class RunningWork(NamedTuple):
    """Seconds of prompt that running requests have to compute."""

    ahead: float  # before a newcomer that can be in time
    yielding: float  # of requests that miss their deadline in any case


def running_work(state: SchedulerState, now: float) -> RunningWork:
    """The prompt work of running requests at this instant; 0 without a fitted model."""
    ahead = yielding = 0.0
    for other in state.running:
        if other.remaining > 1:
            estimate = estimate_prefill(state, other)
            if yields(state, other, estimate.prefill_seconds, now):
                yielding += estimate.prefill_work
            else:
                ahead += estimate.prefill_work
    return RunningWork(ahead, yielding)


def service_rate(state: SchedulerState, now: float) -> ServiceRate | None:
    """The service rate of the queue at this instant; None without a fitted model."""
    model, bounds = state.fitted_model, state.limits.current
    if model is None:
        return None
    decoding = [request for request in state.running if request.remaining == 1]
    work = StepWork(sequences=len(decoding), kv_tokens=sum(request.computed for request in decoding))
    targets = {state.itl_target(request) for request in decoding}
    itl = tightest(targets, model.predict(work), bounds.itl_target)
    prompts, beside = full_step(model, work, itl, bounds.max_batched_tokens, longest_step(state))
    return ServiceRate(
        running_work=running_work(state, now).ahead,
        prefill_share=prompts / (prompts + beside),
        free_places=max(0, state.limits.concurrency - len(state.running)),
        place_interval=0.0 if state.residence is None else state.residence / max(1, state.limits.concurrency),
        step=prompts + beside if state.running else 0.0,
    )

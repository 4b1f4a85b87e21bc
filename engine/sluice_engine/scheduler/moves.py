"""A request's ways between the queue, the running ones and the end: what planning and settling do to the books."""

from typing import TYPE_CHECKING

from sluice_engine.request import Request
from sluice_engine.scheduler.rank import outlook_of
from sluice_engine.scheduler.tenants import PROMPT_WEIGHT

if TYPE_CHECKING:
    from sluice_engine.scheduler.scheduler import Scheduler


def enrol(scheduler: "Scheduler", request: Request) -> None:
    """The request is here, behind all that came so far."""
    request.order = scheduler.arrivals
    scheduler.arrivals += 1
    scheduler.requests[request.request_id] = request


def queue(scheduler: "Scheduler", request: Request) -> None:
    """The request waits for its turn."""
    scheduler.books.hash_known(request)
    scheduler.waiting.push(request, outlook_of(scheduler, request))


def start(scheduler: "Scheduler", request: Request, hit: list[int], now: float) -> None:
    """A waiting request begins to run, from the cached blocks in `hit`."""
    scheduler.waiting.remove(request)
    scheduler.books.start(request, hit)
    if request.swapped_tokens > request.computed:
        scheduler.books.resume(request)
        scheduler.swap.back(request, len(hit))
    else:
        scheduler.swap.drop(request)
    if request.first_scheduled_at is None:
        request.first_scheduled_at = now
        request.cached_tokens = request.computed
        scheduler.counters.charge(request.tenant, PROMPT_WEIGHT * (request.prompt_length - request.computed))


def start_twins(scheduler: "Scheduler", request: Request, now: float) -> list[Request]:
    """Siblings that begin with the step that completes the request's prompt, from its blocks; those that have no
    place queue, and find the prompt's full blocks in the prefix cache."""
    begun: list[Request] = []
    for twin in scheduler.siblings.take(request):
        twin.prompt_counted = True  # with the request's: one prompt, however many samples
        if len(scheduler.running) < scheduler.places and scheduler.fitting.fits(twin, request.blocks):
            scheduler.books.fork(request, twin, request.prompt_length)
            scheduler.books.unseen.discard(twin.slot)  # the row says so
            twin.first_scheduled_at, twin.cached_tokens = now, request.cached_tokens
            begun.append(twin)
        else:
            queue(scheduler, twin)
    return begun


def preempt(scheduler: "Scheduler", victim: Request, forget: bool = False) -> None:
    """Back to its place in the queue; its full blocks stay cached (unless it must `forget` them). The rest is
    computed again, or copied out and back where that is predicted to be quicker."""
    between = victim.waits_for_word
    if not forget and scheduler.swap.pays(victim, scheduler.model):
        scheduler.swap.out(victim)
        scheduler.swaps += 1
    scheduler.books.leave(victim, forget)
    victim.preemptions += 1
    scheduler.preemptions += 1
    if between:
        scheduler.parked[victim.request_id] = victim
    else:
        queue(scheduler, victim)


def displace(scheduler: "Scheduler", request: Request) -> None:
    """A waiting request that has never run is refused after all, with all its samples."""
    for each in scheduler.siblings.take(request):
        del scheduler.requests[each.request_id]
    scheduler.cancel(request.request_id)


def end(scheduler: "Scheduler", request: Request, forget: bool) -> None:
    """A running request is over; `forget` where what it computed cannot be trusted."""
    del scheduler.requests[request.request_id]
    scheduler.speculation.forget(request.request_id)
    scheduler.books.leave(request, forget)
    hand_on(scheduler, request)


def hand_on(scheduler: "Scheduler", request: Request) -> None:
    """Of the samples that waited for one that has left, the first takes its place."""
    others = scheduler.siblings.take(request)
    if others:
        others[0].prompt_counted = request.prompt_counted
        queue(scheduler, others[0])
        scheduler.siblings.attach(others[0], others[1:])

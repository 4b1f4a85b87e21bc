"""Requests that stop after each token until they are told how to go on: the beams of a search.

Between two tokens one keeps its blocks and gets no row. A beam that goes on in two ways forks; its blocks are shared
until one of the two writes. Where beams that wait for word hold what others need to go on, they are parked: their
blocks are given back, and what they know is computed again when they go on.
"""

from typing import TYPE_CHECKING

from sluice_engine.scheduler.moves import enrol, preempt, queue

if TYPE_CHECKING:
    from sluice_engine.scheduler.scheduler import Scheduler


def extend(scheduler: "Scheduler", request_id: str, token: int) -> None:
    """A steered request that has said what its last step gave goes on with this token. Call between steps."""
    request = scheduler.requests[request_id]
    request.known.append(token)
    if scheduler.parked.pop(request_id, None) is not None:
        queue(scheduler, request)


def branch(scheduler: "Scheduler", request_id: str, child_id: str, token: int) -> None:
    """A new steered request that knows what this one does, and goes on with this token; it shares all blocks.

    Call between steps, before the parent is extended. Raises ValueError where `child_id` is here already.
    """
    if child_id in scheduler.requests:
        raise ValueError(f"request {child_id} is already here")
    parent = scheduler.requests[request_id]
    child = parent.sibling(child_id, parent.sampling)
    child.known = [*parent.known, token]
    child.hashes = list(parent.hashes)
    child.steered = child.delivered = True
    child.prompt_counted = parent.prompt_counted
    child.first_scheduled_at, child.last_token_at = parent.first_scheduled_at, parent.last_token_at
    enrol(scheduler, child)
    if parent.slot >= 0 and len(scheduler.running) < scheduler.places:
        scheduler.books.fork(parent, child, parent.computed)
    else:
        queue(scheduler, child)


def park_one(scheduler: "Scheduler") -> bool:
    """Where nothing can be computed because of steered requests that wait for word, the weakest of them gives way.
    Says whether one did."""
    idle = [request for request in scheduler.running if request.waits_for_word]
    if not idle or not (scheduler.waiting or len(idle) < len(scheduler.running)):
        return False
    preempt(scheduler, idle[-1])
    return True

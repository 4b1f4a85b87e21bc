"""Higher priority first, with ageing: one step of priority is worth AGEING_SECONDS of waiting.

A request of the lowest priority is overtaken by newcomers of the highest for AGEING_SECONDS × 200 at most.
"""

from sluice_engine.request import Request
from sluice_engine.scheduler.policies.base import GRAIN, Policy, PrefillEstimate, coarse

AGEING_SECONDS = 0.5
HIGHEST = 100  # priorities are −100..100


def aged_arrival(request: Request) -> float:
    """The arrival time, seconds, that gives a request of priority 0 the same place in the order."""
    return request.arrived_at - AGEING_SECONDS * request.priority


def preemption_key(request: Request) -> tuple[float, int]:
    """The order in which running requests keep their blocks when these run out: highest aged priority, then earliest."""
    return aged_arrival(request), request.order


def _number(request: Request, _: PrefillEstimate) -> float:
    return coarse(aged_arrival(request))


def _overtake_window(request: Request, _: PrefillEstimate) -> float:
    return AGEING_SECONDS * (HIGHEST - request.priority) + GRAIN


PRIORITY = Policy("priority", _number, _overtake_window)

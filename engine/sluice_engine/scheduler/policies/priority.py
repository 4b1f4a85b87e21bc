"""Higher priority first, with ageing: one step of priority is worth AGEING_SECONDS of waiting.

So a request of the lowest priority is overtaken by newcomers of the highest for AGEING_SECONDS × 200 at most.
"""

from sluice_engine.request import Request
from sluice_engine.scheduler.policies.base import GRAIN, Outlook, Policy, coarse

AGEING_SECONDS = 0.5
HIGHEST = 100  # priorities are −100..100


def aged_arrival(request: Request) -> float:
    """When it would have had to arrive without a priority to stand where it stands, seconds."""
    return request.arrived_at - AGEING_SECONDS * request.priority


def _number(request: Request, _: Outlook) -> float:
    return coarse(aged_arrival(request))


def _overtaken_for(request: Request, _: Outlook) -> float:
    return AGEING_SECONDS * (HIGHEST - request.priority) + GRAIN


PRIORITY = Policy("priority", _number, _overtaken_for)

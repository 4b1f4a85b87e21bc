"""Least laxity to the deadline of the first token: by the latest moment at which its prefill can still start.

Once that moment has passed, the deadline is missed, and serving the request first would only miss the next one's as
well (the domino effect of earliest-deadline-first in overload). Its number is raised by PATIENCE_SECONDS, once: after
that time no later deadline overtakes it. A preempted request whose output has started is late already and is served
first.
"""

from sluice_engine.request import Request
from sluice_engine.scheduler.policies.base import GRAIN, Policy, PrefillEstimate, coarse

PATIENCE_SECONDS = 20.0


def _number(request: Request, estimate: PrefillEstimate) -> float:
    if request.delivered and request.last_token_at is not None:
        return coarse(request.last_token_at)
    return coarse(request.arrived_at + _target(request, estimate) - estimate.prefill_seconds)


def _overtake_window(request: Request, estimate: PrefillEstimate) -> float:
    return _target(request, estimate) + PATIENCE_SECONDS + GRAIN


def _target(request: Request, estimate: PrefillEstimate) -> float:
    return estimate.ttft_target if request.ttft_target is None else request.ttft_target


EDF = Policy("edf", _number, _overtake_window, patience=PATIENCE_SECONDS)

"""First come, first served: no request overtakes another."""

from sluice_engine.request import Request
from sluice_engine.scheduler.policies.base import Policy, PrefillEstimate


def _number(request: Request, _: PrefillEstimate) -> float:
    return float(request.order)


FCFS = Policy("fcfs", _number, overtake_window=lambda request, estimate: 0.0)

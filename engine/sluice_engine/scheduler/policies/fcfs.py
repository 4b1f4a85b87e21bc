"""First come, first served: no request overtakes another."""

from sluice_engine.request import Request
from sluice_engine.scheduler.policies.base import Outlook, Policy


def _number(request: Request, _: Outlook) -> float:
    return float(request.order)


FCFS = Policy("fcfs", _number, overtaken_for=lambda request, outlook: 0.0)

"""Shortest remaining prefill first, with ageing: TOKENS_PER_SECOND prompt tokens weigh as much as a second of waiting.

A prompt of 8,000 tokens is overtaken by shorter ones that arrive within 32 seconds of it, never by later ones.
"""

from sluice_engine.request import Request
from sluice_engine.scheduler.policies.base import GRAIN, Policy, PrefillEstimate, coarse

TOKENS_PER_SECOND = 250.0


def _number(request: Request, estimate: PrefillEstimate) -> float:
    return coarse(request.arrived_at + estimate.prefill_tokens / TOKENS_PER_SECOND)


def _overtake_window(_: Request, estimate: PrefillEstimate) -> float:
    return estimate.prefill_tokens / TOKENS_PER_SECOND + GRAIN


SRPF = Policy("srpf", _number, _overtake_window)

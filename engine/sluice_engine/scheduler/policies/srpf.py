"""Shortest remaining prefill first, with ageing: TOKENS_PER_SECOND prompt tokens weigh as much as a second of waiting.

A prompt of 8,000 tokens is overtaken by shorter ones that arrive within 32 seconds of it, never by later ones.
"""

from sluice_engine.request import Request
from sluice_engine.scheduler.policies.base import GRAIN, Outlook, Policy, coarse

TOKENS_PER_SECOND = 250.0


def _number(request: Request, outlook: Outlook) -> float:
    return coarse(request.arrived_at + outlook.prefill_tokens / TOKENS_PER_SECOND)


def _overtaken_for(_: Request, outlook: Outlook) -> float:
    return outlook.prefill_tokens / TOKENS_PER_SECOND + GRAIN


SRPF = Policy("srpf", _number, _overtaken_for)

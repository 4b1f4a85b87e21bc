"""What a policy is: one number per request, smaller is served sooner, that does not change while the request waits.

Ageing needs no clock: "priority plus waiting time" orders two requests the same at every moment, so it is the fixed
number "arrival less priority", and a heap keeps the queue in O(log n) however long it is. The same numbers bound
starvation: a request can only be overtaken by those whose number is smaller, that is, by those that arrive within a
known time after it (`Policy.overtaken_for`), and never by anyone later, whatever the load.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from sluice_engine.request import Request

GRAIN = 0.02  # seconds: nearer numbers are a tie, and the tenants' counters decide


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a number may depend on besides the request. Seconds and tokens."""

    prefill_tokens: int  # still to compute before its next token
    prefill_seconds: float  # what the step-time model says of them; 0 without a trusted model
    ttft_target: float  # for requests without one of their own
    prefill_work: float = 0.0  # of `prefill_seconds`, without a step's own base


@dataclass(frozen=True, slots=True)
class Policy:
    """`number(request, outlook)` in seconds (or any unit of its own where nothing is compared with time)."""

    name: str
    number: Callable[[Request, Outlook], float]
    overtaken_for: Callable[[Request, Outlook], float]  # later arrivals within so many seconds may be served before it
    patience: float | None = None  # a number that the clock has passed is renewed once, by this many seconds
    by_tenant: bool = False  # the tenant with the least counter first; the number orders within a tenant


def coarse(seconds: float) -> float:
    """Seconds in grains."""
    return math.floor(seconds / GRAIN) * GRAIN

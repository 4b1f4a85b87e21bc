"""A policy: one number per request, which does not change while the request waits; smaller is served sooner.

Ageing needs no clock: "priority plus waiting time" orders two requests the same at every moment, so it is the fixed
number "arrival less priority", and a heap keeps the queue in O(log n) however long it is. The same numbers bound
starvation: a request can only be overtaken by requests with a smaller number, that is, by those that arrive within a
known time after it (`Policy.overtake_window`), and never by a later one, whatever the load.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from sluice_engine.request import Request

GRAIN = 0.02  # seconds: smaller differences are a tie, which the tenants' counters break


@dataclass(frozen=True, slots=True)
class PrefillEstimate:
    """A request's remaining prefill work and the default target: what `Policy.number` reads besides the request."""

    prefill_tokens: int  # still to compute before its next token
    prefill_seconds: float  # as the step-time model predicts; 0 without a fitted model
    ttft_target: float  # for requests that have none
    prefill_work: float = 0.0  # of `prefill_seconds`, without a step's own base


@dataclass(frozen=True, slots=True)
class Policy:
    """`number(request, estimate)` in seconds (or any unit of its own where nothing is compared with time)."""

    name: str
    number: Callable[[Request, PrefillEstimate], float]
    # seconds after its arrival; later ones never overtake it
    overtake_window: Callable[[Request, PrefillEstimate], float]
    patience: float | None = None  # a number that the clock has passed is renewed once, by this many seconds
    by_tenant: bool = False  # the tenant with the least counter first; the number orders within a tenant


def coarse(seconds: float) -> float:
    """Seconds in grains."""
    return math.floor(seconds / GRAIN) * GRAIN

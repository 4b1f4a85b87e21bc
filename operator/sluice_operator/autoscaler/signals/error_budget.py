"""The error budget: how many of the next requests may miss the SLO so that the target holds over a whole day.

A target of 99 % allows one request of a hundred to miss. A plan for 99 % in every minute misses far fewer over the day
and costs more: after a long time without misses, an extra replica for a slightly higher load buys nothing that the SLO
requires. After many misses, a plan for 99 % does not restore the target either. (Error budgets: Beyer et al., "Site
Reliability Engineering", 2016, chapter 3.)

Part of the budget is a reserve for jumps of the load: no plan serves the requests that arrive before new replicas are
ready. One bad hour costs the same after a calm day as after a calm hour, so the reserve is measured in hours of the
current load and not as a share of the past.
"""

import math
from dataclasses import dataclass

from sluice_operator.autoscaler.settings import LAW


@dataclass(frozen=True, slots=True)
class Outcome:
    """Number of requests by outcome."""

    met: float
    late: float  # or failed
    rejected: float

    @property
    def missed(self) -> float:
        """All requests that were not good."""
        return self.late + max(0.0, self.rejected)


@dataclass(frozen=True, slots=True)
class ErrorTally:
    """Sums that decay with a time constant of a day: requests that were good, late (or failed), or rejected.

    A request counts as rejected when all replicas reject it.
    """

    at: float = 0.0
    met: float = 0.0
    late: float = 0.0
    rejected: float = 0.0

    @property
    def missed(self) -> float:
        """All requests that were not good."""
        return self.late + self.rejected


def add_outcome(tally: ErrorTally, new: Outcome, now: float) -> ErrorTally:
    """Add the outcomes since the last call."""
    keep = math.exp(-max(0.0, now - tally.at) / LAW.signals.error_tally_seconds)
    return ErrorTally(
        at=now,
        met=tally.met * keep + new.met,
        late=tally.late * keep + new.late,
        # Below 0 when a dead replica's requests are offered again.
        rejected=max(0.0, tally.rejected * keep + new.rejected),
    )


def planned_attainment(tally: ErrorTally, target: float, rate: float, seconds: float) -> float:
    """The attainment to plan for over the next `seconds`, at `rate` requests per second.

    The budget covers the requests of the last day and those that will arrive. Its remainder, less the reserve, is
    spread over the latter. Without any request the result is `target`.
    """
    settings = LAW.signals
    coming = rate * seconds
    if coming <= 0.0 or tally.met + tally.missed <= 0.0:
        return target
    allowed = 1.0 - target
    known = tally.met + tally.missed + coming
    base = min(known, rate * settings.budget_reserve_base_seconds)
    left = allowed * (known - settings.budget_reserve * base) - tally.missed
    return 1.0 - min(max(left / coming, settings.budget_least * allowed), settings.budget_most * allowed)

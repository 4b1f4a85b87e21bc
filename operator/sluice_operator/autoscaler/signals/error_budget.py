"""The error budget: how many of the next requests may miss the SLO so that the target holds over a whole day.

A target of 99 % allows one request of a hundred to miss. A plan for 99 % in every minute misses far fewer over the day
and costs more: after a long time without misses, an extra replica for a slightly higher load buys nothing that the SLO
requires. After many misses, a plan for 99 % does not restore the target either. (Error budgets: Beyer et al., "Site
Reliability Engineering", 2016, chapter 3.)

Part of the budget is a reserve for jumps of the load: no plan serves the requests that arrive before new replicas are
ready. One bad hour costs the same after a calm day as after a calm hour, so the reserve is measured in hours of the
current load and not as a share of the past.
"""

from typing import Final

from sluice_operator.autoscaler.values import Tally

HOUR: Final = 3600.0  # seconds of the current load whose budget is the base of the reserve
RESERVE: Final = 0.5  # of an hour's budget; of the whole budget while less than an hour is known
MOST: Final = 6.0  # times the targeted share of misses: beyond it the misses come in one block
LEAST: Final = 1.0


def planned(kept: Tally, target: float, rate: float, seconds: float) -> float:
    """The attainment to plan for over the next `seconds`, at `rate` requests per second.

    The budget covers the requests of the last day and those that will arrive. Its remainder, less the reserve, is
    spread over the latter. Without any request the result is `target`.
    """
    coming = rate * seconds
    if coming <= 0.0 or kept.met + kept.missed <= 0.0:
        return target
    allowed = 1.0 - target
    known = kept.met + kept.missed + coming
    left = allowed * (known - RESERVE * min(known, rate * HOUR)) - kept.missed
    return 1.0 - min(max(left / coming, LEAST * allowed), MOST * allowed)

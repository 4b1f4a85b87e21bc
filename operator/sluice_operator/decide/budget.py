"""The error budget: how many of those who come next may be missed, so that the promise is kept over the last day as a whole.

A promise of 99 % allows one request of a hundred to be late. Who plans every minute for 99 % misses far fewer over the
day, and pays for it: where nothing was missed for long, a replica more for a load that is a hair too high buys nothing
that was promised. And where much was missed, planning for 99 % from now on does not keep the promise either. (Error
budgets: Beyer et al., "Site Reliability Engineering", 2016, chapter 3.)

What may be missed is not all spent on purpose: loads jump, and who comes before the replicas are back is missed by no
plan. One bad hour costs the same after a calm day as after a calm hour, so what is kept back is measured in hours of
the load as it is, not as a share of the past.
"""

from typing import Final

from sluice_operator.decide.values import Tally

HOUR: Final = 3600.0  # seconds of the load whose budget the reserve is taken from
RESERVE: Final = 0.5  # of an hour's budget, and of all that there is while less than an hour is known
MOST: Final = 6.0  # times the promised share of misses: beyond, those who are late all come at once
LEAST: Final = 1.0


def planned(kept: Tally, promised: float, rate: float, seconds: float) -> float:
    """The attainment to plan the next `seconds` for, at `rate` requests per second: what is left of the budget of those who
    came in the last day and of those who come, but for the reserve, spread over the latter. The promised share while nobody
    has come."""
    coming = rate * seconds
    if coming <= 0.0 or kept.met + kept.missed <= 0.0:
        return promised
    allowed = 1.0 - promised
    known = kept.met + kept.missed + coming
    left = allowed * (known - RESERVE * min(known, rate * HOUR)) - kept.missed
    return 1.0 - min(max(left / coming, LEAST * allowed), MOST * allowed)

"""The error budget: how many of those who come next may be missed, so that the promise is kept over the last hour as a whole.

A promise of 99 % allows one request of a hundred to be late. Who plans every minute for 99 % misses far fewer over the
hour, and pays for it: where nothing was missed for long, a replica more for a load that is a hair too high buys nothing
that was promised. And where much was missed, planning for 99 % from now on does not keep the promise either. (Error
budgets: Beyer et al., "Site Reliability Engineering", 2016, chapter 3.)
"""

import math
from dataclasses import replace
from typing import Final

from sluice_operator.decide.values import Kept

HOUR: Final = 3600.0  # seconds that misses are remembered for
SPENT: Final = 0.5  # of the budget: the forecasts that it is spent by are wrong too
MOST: Final = 6.0  # times the promised share of misses: beyond, those who are late all come at once
LEAST: Final = 1.0


def count(kept: Kept, met: float, missed: float, now: float) -> Kept:
    """Fold in how many requests were good and how many not since the last time."""
    keep = math.exp(-max(0.0, now - kept.at) / HOUR)
    return replace(kept, at=now, met=kept.met * keep + met, missed=kept.missed * keep + missed)


def planned(kept: Kept, promised: float, rate: float, seconds: float) -> float:
    """The attainment to plan the next `seconds` for, at `rate` requests per second: what is left of the budget of those who
    came in the last hour and of those who come, spread over the latter. The promised share while nobody has come."""
    coming = rate * seconds
    if coming <= 0.0 or kept.met + kept.missed <= 0.0:
        return promised
    allowed = 1.0 - promised
    left = SPENT * allowed * (kept.met + kept.missed + coming) - kept.missed
    return 1.0 - min(max(left / coming, LEAST * allowed), MOST * allowed)

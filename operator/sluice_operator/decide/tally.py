"""How many requests of the last day were good and how many were not, as sums that forget."""

import math
from dataclasses import replace
from typing import Final

from sluice_operator.decide.values import Tally

DAY: Final = 86_400.0  # seconds that misses are remembered for: loads go round in a day


def count(kept: Tally, met: float, missed: float, now: float) -> Tally:
    """Fold in how many requests were good and how many not since the last time."""
    keep = math.exp(-max(0.0, now - kept.at) / DAY)
    return replace(kept, at=now, met=kept.met * keep + met, missed=max(0.0, kept.missed * keep + missed))

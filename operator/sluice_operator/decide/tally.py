"""How many requests of the last day were good and how many were not, as sums that forget."""

import math
from dataclasses import replace
from typing import Final

from sluice_operator.decide.values import Kept

DAY: Final = 86_400.0  # seconds that misses are remembered for: loads go round in a day


def count(kept: Kept, met: float, missed: float, now: float) -> Kept:
    """Fold in how many requests were good and how many not since the last time."""
    keep = math.exp(-max(0.0, now - kept.at) / DAY)
    return replace(kept, at=now, met=kept.met * keep + met, missed=kept.missed * keep + missed)

"""How many requests of the last day were good and how many were not, as sums that forget."""

import math
from typing import Final

from sluice_operator.decide.values import Outcome, Tally

DAY: Final = 86_400.0  # seconds that misses are remembered for: loads go round in a day


def count(kept: Tally, grew: Outcome, now: float) -> Tally:
    """Fold in what became of requests since the last time."""
    keep = math.exp(-max(0.0, now - kept.at) / DAY)
    return Tally(
        at=now,
        met=kept.met * keep + grew.met,
        late=kept.late * keep + grew.late,
        refused=max(0.0, kept.refused * keep + grew.refused),  # a replica that dies has others offered again, too
    )

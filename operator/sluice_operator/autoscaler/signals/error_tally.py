"""The error tally: exponentially decaying counts of good, late and rejected requests over a day."""

import math
from typing import Final

from sluice_operator.autoscaler.values import Outcome, Tally

DAY: Final = 86_400.0  # seconds, time constant: loads have a daily cycle


def count(kept: Tally, grew: Outcome, now: float) -> Tally:
    """Add the outcomes since the last call."""
    keep = math.exp(-max(0.0, now - kept.at) / DAY)
    return Tally(
        at=now,
        met=kept.met * keep + grew.met,
        late=kept.late * keep + grew.late,
        refused=max(0.0, kept.refused * keep + grew.refused),  # < 0 when a dead replica's requests are offered again
    )

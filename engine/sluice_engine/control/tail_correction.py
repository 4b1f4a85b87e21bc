"""The overrun of steps with prompt chunks: measured over predicted seconds, at the percentile that targets are for.

The fitted model is right on the mean; a target for the 95th percentile of inter-token times must hold for slow steps
as well. So a chunk gets target / tail() seconds, tail being the p95 of measured over predicted; a lower percentile where
a slow step meets the target by cutting the end of its chunk (`step_deadline`).
"""

from collections import deque

SAMPLES = 64
TRUSTED = 16
PERCENTILE = 0.95
PERCENTILE_WITH_DEADLINE = 0.8  # where slow steps cut the end of a chunk
MOST = 3.0  # a model that is further off is wrong, and is not corrected


class TailCorrection:
    """Observes the measured and predicted seconds of mixed steps whose chunk a target bounded."""

    def __init__(self) -> None:
        self._ratios: deque[float] = deque(maxlen=SAMPLES)
        self._ordered: list[float] = []
        self._stale = False

    def observe(self, measured: float, predicted: float) -> None:
        """One step with decoding requests and a prompt chunk that a target bounded."""
        if predicted > 0.0:
            self._ratios.append(measured / predicted)
            self._stale = True

    def tail(self, percentile: float = PERCENTILE) -> float:
        """At least 1: the fit corrects an overestimate itself, and a step need not last until its target."""
        if len(self._ratios) < TRUSTED:
            return 1.0
        if self._stale:
            self._ordered, self._stale = sorted(self._ratios), False
        return min(max(self._ordered[int(percentile * (len(self._ordered) - 1))], 1.0), MOST)

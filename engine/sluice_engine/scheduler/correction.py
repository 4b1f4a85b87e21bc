"""By how much the steps that carried prompt chunks overran their prediction, at the percentile that targets are about.

The fitted model is right on the mean; a target for the 95th percentile of inter-token times must hold for the slow
steps as well. So a chunk gets target / tail() seconds, tail being the p95 of measured over predicted; a lower percentile
where a slow step keeps the target by giving up the end of its chunk (`../deadline.py`).
"""

from collections import deque

SAMPLES = 64
TRUSTED = 16
PERCENTILE = 0.95
GIVING_UP = 0.8  # where slow steps give up chunks
MOST = 3.0  # a model further off than this is not corrected but wrong


class TailCorrection:
    """Feed it measured and predicted seconds of mixed steps that were to take as long as a target allows."""

    def __init__(self) -> None:
        self._ratios: deque[float] = deque(maxlen=SAMPLES)
        self._ordered: list[float] = []
        self._stale = False

    def observe(self, measured: float, predicted: float) -> None:
        """One step that decoded beside a prompt chunk which a target bounded."""
        if predicted > 0.0:
            self._ratios.append(measured / predicted)
            self._stale = True

    def tail(self, percentile: float = PERCENTILE) -> float:
        """At least 1: a model that overestimates learns so by itself, and a target is no goal to be used up."""
        if len(self._ratios) < TRUSTED:
            return 1.0
        if self._stale:
            self._ordered, self._stale = sorted(self._ratios), False
        return min(max(self._ordered[int(percentile * (len(self._ordered) - 1))], 1.0), MOST)

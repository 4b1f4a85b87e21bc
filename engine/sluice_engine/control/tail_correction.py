"""The ratio of measured to predicted step time for steps with prompt chunks, at the percentile of the target.

The fitted model predicts the mean, and an inter-token target is a 95th percentile. So a chunk gets target / tail()
seconds, where tail is the p95 of measured over predicted time. The percentile is lower where a slow step can cut the
end of its chunk (`step_deadline`).
"""

from collections import deque

SAMPLES = 64
MIN_RATIOS = 16  # fewer give no correction
PERCENTILE = 0.95
PERCENTILE_WITH_DEADLINE = 0.8  # where slow steps cut the end of a chunk
MOST = 3.0  # upper bound: a model with a larger error is wrong and is not corrected


class TailCorrection:
    """Keeps the ratios of the last mixed steps whose chunk size the target limited."""

    def __init__(self) -> None:
        self._ratios: deque[float] = deque(maxlen=SAMPLES)
        self._ordered: list[float] = []
        self._stale = False

    def observe(self, measured: float, predicted: float) -> None:
        """Add a step with decoding requests and a chunk whose size the target limited."""
        if predicted > 0.0:
            self._ratios.append(measured / predicted)
            self._stale = True

    def tail(self, percentile: float = PERCENTILE) -> float:
        """The ratio at `percentile`, at least 1: the fit corrects overestimates itself."""
        if len(self._ratios) < MIN_RATIOS:
            return 1.0
        if self._stale:
            self._ordered, self._stale = sorted(self._ratios), False
        return min(max(self._ordered[int(percentile * (len(self._ordered) - 1))], 1.0), MOST)

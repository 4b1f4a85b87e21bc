"""Sliding window of a coarse engine's load: the figures of the real engine's window, computed from running sums."""

from collections import deque
from operator import itemgetter
from typing import Final, NamedTuple

from sluice_engine.control.limit_controller import WINDOW_SECONDS

TAIL: Final = 0.05  # share of the tokens beyond the p95

# The arguments of one `CoarseLoadWindow.record` call. A plain tuple for speed: there is up to one per step.
StepRecord = tuple[float, int, float, float, int, int]
_AT: Final = 0
_GAP: Final = 3


class WindowStatistics(NamedTuple):
    """Rates in tokens per second and Σ chunk × context per second; times in seconds, None without any token."""

    prefill_rate: float
    prefill_context_rate: float
    p95: float | None
    mean: float | None
    sequences: float | None


class CoarseLoadWindow:
    """A sliding window over pieces of WINDOW_SECONDS.

    The running sums hold multiples of half a token, so adding and subtracting leaves no rounding error. Sums of
    seconds would accumulate rounding errors, so they are recomputed."""

    def __init__(self) -> None:
        self._pieces: deque[StepRecord] = deque()
        self._begun: float | None = None
        self._prefill = self._tokens = self._rows = 0
        self._context = 0.0

    def record(self, at: float, prefill: int, context: float, gap: float, tokens: int, sequences: int) -> None:
        """Add steps that ended at `at` (s).

        `prefill` counts prompt tokens and `context` is Σ chunk × context. Each of the `tokens` output tokens had the
        inter-token time `gap` (s) with `sequences` sequences in the batch."""
        if self._begun is None:
            self._begun = at
        self._pieces.append((at, prefill, context, gap, tokens, sequences))
        self._prefill += prefill
        self._context += context
        self._tokens += tokens
        self._rows += sequences * tokens

    def statistics(self, now: float) -> WindowStatistics:
        """The figures of the last WINDOW_SECONDS; older pieces are dropped."""
        pieces, oldest = self._pieces, now - WINDOW_SECONDS
        while pieces and pieces[0][_AT] < oldest:
            _, prefill, context, _, tokens, sequences = pieces.popleft()
            self._prefill -= prefill
            self._context -= context
            self._tokens -= tokens
            self._rows -= sequences * tokens
        begun = now if self._begun is None else self._begun
        span, all_tokens = max(1.0, min(WINDOW_SECONDS, now - begun)), self._tokens
        prefill_rate, context_rate = self._prefill / span, self._context / span
        if not all_tokens:
            return WindowStatistics(prefill_rate, context_rate, None, None, None)
        seconds = 0.0
        for _, _, _, gap, tokens, _ in pieces:
            seconds += gap * tokens
        return WindowStatistics(
            prefill_rate, context_rate, self._p95(all_tokens), seconds / all_tokens, self._rows / all_tokens
        )

    def _p95(self, tokens: int) -> float:
        """95th percentile of the inter-token times, weighted by tokens (s)."""
        left = TAIL * tokens
        for _, _, _, gap, count, _ in sorted(self._pieces, key=_gap, reverse=True):
            left -= count
            if left < 0:
                return gap
        return 0.0


_gap = itemgetter(_GAP)

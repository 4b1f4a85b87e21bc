"""What a coarse engine measured over the last seconds: the same figures as the engine's own window, from sums."""

from collections import deque
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, NamedTuple

from sluice_engine.admission import WINDOW_SECONDS

TAIL: Final = 0.05  # share of the tokens beyond the p95


class Piece(NamedTuple):  # a tuple: there is one for each step, and it is read ten times over
    """Steps that ended at `at`: what they computed, and the inter-token time that each of `tokens` saw."""

    at: float
    prefill_tokens: int
    prefill_context: float
    gap: float
    tokens: int
    sequences: int


@dataclass(frozen=True, slots=True)
class Figures:
    """Rates per second; times in seconds, None without any token."""

    prefill_rate: float
    prefill_context_rate: float
    p95: float | None
    mean: float | None
    sequences: float | None


class FluidWindow:
    """A sliding window over pieces."""

    def __init__(self) -> None:
        self._pieces: deque[Piece] = deque()
        self._begun: float | None = None

    def record(self, piece: Piece) -> None:
        """Add the newest."""
        if self._begun is None:
            self._begun = piece.at
        self._pieces.append(piece)

    def figures(self, now: float) -> Figures:
        """The last seconds, what is older forgotten."""
        pieces = self._pieces
        while pieces and pieces[0].at < now - WINDOW_SECONDS:
            pieces.popleft()
        tokens = prefill = 0
        context = seconds = rows = 0.0
        for _, prompt, attended, gap, count, sequences in pieces:
            prefill += prompt
            context += attended
            tokens += count
            seconds += gap * count
            rows += sequences * count
        begun = now if self._begun is None else self._begun
        span = max(1.0, min(WINDOW_SECONDS, now - begun))
        if not tokens:
            return Figures(prefill / span, context / span, None, None, None)
        return Figures(prefill / span, context / span, self._p95(tokens), seconds / tokens, rows / tokens)

    def _p95(self, tokens: int) -> float:
        """The gap above which a twentieth of the tokens are."""
        left = TAIL * tokens
        for piece in sorted(self._pieces, key=_gap, reverse=True):
            left -= piece.tokens
            if left < 0:
                return piece.gap
        return 0.0


_gap = attrgetter("gap")

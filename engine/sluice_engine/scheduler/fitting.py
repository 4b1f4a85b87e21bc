"""Whether one more request may run: there is room now, and so there will be at the predicted peak.

Without the first a long prompt is admitted, preempted and admitted again; without the second those that run grow into
each other (Past-Future, ASPLOS'25).
"""

from collections.abc import Sequence

from sluice_engine.admission import Limits
from sluice_engine.request import Request
from sluice_engine.scheduler.books import Books
from sluice_engine.scheduler.config import SchedulerConfig
from sluice_engine.scheduler.forecast import predicted_peak
from sluice_engine.scheduler.lengths import OutputLengths


class Fitting:
    """The question of admission, over the books as they stand."""

    def __init__(self, config: SchedulerConfig, limits: Limits, books: Books, lengths: OutputLengths) -> None:
        self._config = config
        self._limits = limits
        self._books = books
        self._lengths = lengths
        self._kept_out: tuple[str, int, float] | None = None  # by the predicted peak: whom, as of which departure

    def fits(self, request: Request, hit: Sequence[int]) -> bool:
        """Whether a waiting request may run, from the cached blocks in `hit`. The only one always may, and so may a whole one: it
        holds no blocks."""
        if request.whole or not self._books.running:
            return True
        if not self._fits_now(request, hit):
            return False
        if not self._config.predicted_admission:
            return True
        asked = (request.request_id, self._books.departures, self._most)
        if asked == self._kept_out:  # who was kept out stays so until somebody gives blocks back
            return False
        fits = self._predicted_peak(request, hit) <= self._most
        self._kept_out = None if fits else asked
        return fits

    @property
    def _most(self) -> float:
        """Blocks that running requests may hold."""
        return self._limits.bounds.kv_watermark * self._config.num_blocks

    def _fits_now(self, request: Request, hit: Sequence[int]) -> bool:
        """Whether its whole sequence, what running prompts still need and a block for each running request fit."""
        books, pool = self._books, self._books.pool
        need = books.blocks_for(len(request.known) + 1) - len(hit)
        taken = need + pool.unheld(hit) + sum(books.owed(other) for other in books.running)
        return pool.held + taken <= self._most and taken + len(books.running) <= pool.available

    def _predicted_peak(self, request: Request, hit: Sequence[int]) -> float:
        """Blocks that the running requests and this one will hold at their peak; 0 while lengths are unknown."""
        running, pool = self._books.running, self._books.pool
        growing = (other for other in (*running, request) if not other.whole)
        future = [(self._lengths.remaining(other), len(other.known)) for other in growing]
        known = [(remaining, context) for remaining, context in future if remaining is not None]
        shared = sum(len(other.blocks) for other in running) - pool.held + len(hit) - pool.unheld(hit)
        return predicted_peak(known, self._config.block_size) - shared if len(known) == len(future) else 0.0

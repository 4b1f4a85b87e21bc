"""Whether one more request may run: there is room now, and so there will be at the predicted peak.

Without the first a long prompt is admitted, preempted and admitted again; without the second those that run grow into
each other (Past-Future, ASPLOS'25).
"""

from collections.abc import Sequence

from sluice_engine.admission import Limits
from sluice_engine.blocks import HOLE
from sluice_engine.request import Request
from sluice_engine.scheduler.books import Books
from sluice_engine.scheduler.budget import MINIMUM_CHUNK
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
        self._kept_out: tuple[int, int, int, float] | None = None  # by the predicted peak: whom, and as of when

    def fits(self, request: Request, hit: Sequence[int]) -> bool:
        """Whether a waiting request may run, from the cached blocks in `hit`. The only one always may, and so may a
        whole one: it holds no blocks."""
        if request.whole or self._books.empty:
            return True
        if not self._fits_now(request, hit):
            return False
        if not self._config.predicted_admission:
            return True
        # Who was kept out stays so until somebody leaves or more of the prompt is shared: a request that writes moves a
        # block from what it will take to what it has, and one that gives back what left its window had it counted so.
        asked = (request.order, self._books.departures, _held(hit) - self._books.pool.unheld(hit), self._most)
        if asked == self._kept_out:
            return False
        fits = self._room_for_longest(request) or self._predicted_peak(request, hit) <= self._most
        self._kept_out = None if fits else asked
        return fits

    @property
    def _most(self) -> float:
        """Blocks that running requests may hold."""
        return self._limits.bounds.kv_watermark * self._config.num_blocks

    def _room_for_longest(self, request: Request) -> bool:
        """Whether there is room even if everybody still writes as much as the longest answer that is known, and nobody
        ends before: then the peak, which takes ten times as long to predict, is no question."""
        running, size, longest = self._books.running, self._config.block_size, max(1, self._lengths.longest)
        tokens = 0
        for other in (*running, request):
            known = len(other.known)
            tokens += known + size + max(longest, known - other.prompt_length)
        return tokens * self._config.groups <= self._most * size

    def _fits_now(self, request: Request, hit: Sequence[int]) -> bool:
        """Whether its whole sequence, what running prompts still need and a block for each running request fit."""
        books, pool = self._books, self._books.pool
        need = max(self._owed(len(request.known) + 1, hit), coming_back(request, hit))
        size, groups = self._config.block_size, self._config.groups
        short = (other for other in books.running if len(other.known) * groups > len(other.blocks) * size)  # few are
        owed = sum(self._owed(len(other.known), other.blocks) for other in short if not other.whole)
        taken = need + pool.unheld(hit) + owed
        return pool.held + taken <= self._most and taken + len(books.running) * groups <= pool.available

    def _owed(self, tokens: int, blocks: Sequence[int]) -> int:
        """Blocks that a request with this table still takes until so many tokens are computed: with a window, at most
        what holds that and a chunk."""
        config, owed = self._config, self._books.blocks_for(tokens) - len(blocks)
        window, groups = config.window, config.groups
        if window is None or owed <= 0:
            return owed
        stretches = owed // groups
        seen = -(-(window + max(MINIMUM_CHUNK, self._limits.bounds.max_batched_tokens)) // config.block_size) + 1
        seen -= len(blocks) // groups - blocks.count(HOLE) // config.sliding
        return stretches * (groups - config.sliding) + max(0, min(stretches, seen)) * config.sliding

    def first_room(self, request: Request, hit: Sequence[int]) -> int:
        """Tokens that a waiting request could compute at once with every block there is, from those in `hit`."""
        pool, groups, back = self._books.pool, self._config.groups, coming_back(request, hit)
        table = max(len(hit), len(request.swapped))
        free = max(0, pool.available - pool.unheld(hit) - back)
        found = max(len(hit) // groups * pool.block_size, request.swapped_tokens)
        return (table // groups + free // groups) * pool.block_size - found

    def _predicted_peak(self, request: Request, hit: Sequence[int]) -> float:
        """Blocks that the running requests and this one will hold at their peak; 0 while lengths are unknown."""
        running, pool = self._books.running, self._books.pool
        growing = (other for other in (*running, request) if not other.whole)
        future = [(self._lengths.remaining(other), len(other.known)) for other in growing]
        known = [(remaining, context) for remaining, context in future if remaining is not None]
        shared = sum(_held(other.blocks) for other in running) - pool.held + _held(hit) - pool.unheld(hit)
        peak = predicted_peak(known, self._config.block_size, self._config.windows)
        return peak - shared if len(known) == len(future) else 0.0


def coming_back(request: Request, hit: Sequence[int]) -> int:
    """Blocks that it takes to copy back what host memory keeps of the request, behind those in `hit`."""
    return _held(request.swapped[len(hit) :])


def _held(blocks: Sequence[int]) -> int:
    return len(blocks) - blocks.count(HOLE)

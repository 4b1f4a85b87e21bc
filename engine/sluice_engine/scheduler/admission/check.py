"""Whether a waiting request may start: it fits into the KV cache now and at the predicted peak.

Without the first condition a long prompt is admitted, preempted and admitted again; without the second the running
requests outgrow the pool (Past-Future, ASPLOS'25).
"""

from collections.abc import Sequence

from sluice_engine.control.limit_controller import LimitController
from sluice_engine.kvcache.block_pool import HOLE
from sluice_engine.kvcache.block_tables import BlockTables
from sluice_engine.request import Request
from sluice_engine.scheduler.admission.kv_forecast import predicted_peak
from sluice_engine.scheduler.admission.output_lengths import OutputLengths
from sluice_engine.scheduler.chunking import MINIMUM_CHUNK
from sluice_engine.scheduler.config import SchedulerConfig


class AdmissionCheck:
    """The admission test over the current block tables. It keeps no result: the predicted peak changes with each token."""

    def __init__(
        self, config: SchedulerConfig, limits: LimitController, tables: BlockTables, lengths: OutputLengths
    ) -> None:
        self._config = config
        self._limits = limits
        self._tables = tables
        self._lengths = lengths

    def can_start(self, request: Request, hit: Sequence[int]) -> bool:
        """Whether a waiting request may start from the cached blocks in `hit`. A request always may where it is the only
        one, and a pooling request always may, because it holds no blocks."""
        return self.steps_excluded(request, hit) == 0

    def steps_excluded(self, request: Request, hit: Sequence[int]) -> int | None:
        """The number of decode-only steps that surely begin before the request may start, if no request ends meanwhile.
        0: it may start now; None: it may not before blocks are released.

        The predicted peak falls by up to one token per step even while nothing is released: the later the request starts,
        the less it will have written when the running requests end.
        """
        if request.pooling or self._tables.empty:
            return 0
        if not self._fits_now(request, hit):
            return None
        if not self._config.predicted_admission or self._room_for_longest(request):
            return 0
        excess = self._predicted_peak(request, hit) - self._block_limit
        return max(1, int(excess * self._config.block_size / self._config.groups)) if excess > 0.0 else 0

    @property
    def _block_limit(self) -> float:
        """Blocks that running requests may hold."""
        return self._limits.current.kv_watermark * self._config.num_blocks

    def _room_for_longest(self, request: Request) -> bool:
        """Whether there is room even if each request still writes the longest known output and none ends before: then the
        peak, which takes ten times as long to predict, need not be."""
        running, size, longest = self._tables.running, self._config.block_size, max(1, self._lengths.longest)
        tokens = 0
        for other in (*running, request):
            known = len(other.known)
            tokens += known + size + max(longest, known - other.prompt_length)
        return tokens * self._config.groups <= self._block_limit * size

    def _fits_now(self, request: Request, hit: Sequence[int]) -> bool:
        """Whether its whole sequence, what running prompts still need and a block for each running request fit."""
        tables, pool = self._tables, self._tables.pool
        need = max(self._owed(len(request.known) + 1, hit), swapped_blocks(request, hit))
        size, groups = self._config.block_size, self._config.groups
        short = (other for other in tables.running if len(other.known) * groups > len(other.blocks) * size)  # few are
        owed = sum(self._owed(len(other.known), other.blocks) for other in short if not other.pooling)
        taken = need + pool.count_cached(hit) + owed
        return pool.held + taken <= self._block_limit and taken + len(tables.running) * groups <= pool.available

    def _owed(self, tokens: int, blocks: Sequence[int]) -> int:
        """Blocks that a request with this table still takes until `tokens` tokens are computed: with a window, at most the
        blocks of the window and a chunk."""
        config, owed = self._config, self._tables.blocks_for(tokens) - len(blocks)
        window, groups = config.window, config.groups
        if window is None or owed <= 0:
            return owed
        logical_blocks = owed // groups
        seen = -(-(window + max(MINIMUM_CHUNK, self._limits.current.max_batched_tokens)) // config.block_size) + 1
        seen -= len(blocks) // groups - blocks.count(HOLE) // config.sliding
        return logical_blocks * (groups - config.sliding) + max(0, min(logical_blocks, seen)) * config.sliding

    def first_room(self, request: Request, hit: Sequence[int]) -> int:
        """Tokens that a waiting request could compute at once with all available blocks, from those in `hit`."""
        pool, groups, back = self._tables.pool, self._config.groups, swapped_blocks(request, hit)
        table = max(len(hit), len(request.swapped))
        free = max(0, pool.available - pool.count_cached(hit) - back)
        found = max(len(hit) // groups * pool.block_size, request.swapped_tokens)
        return (table // groups + free // groups) * pool.block_size - found

    def _predicted_peak(self, request: Request, hit: Sequence[int]) -> float:
        """Blocks that the running requests and this one will hold at their peak; 0 while lengths are unknown."""
        running, pool = self._tables.running, self._tables.pool
        growing = (other for other in (*running, request) if not other.pooling)
        future = [(self._lengths.remaining(other), len(other.known)) for other in growing]
        known = [(remaining, context) for remaining, context in future if remaining is not None]
        shared = sum(_held(other.blocks) for other in running) - pool.held + _held(hit) - pool.count_cached(hit)
        peak = predicted_peak(known, self._config.block_size, self._config.windows)
        return peak - shared if len(known) == len(future) else 0.0


def swapped_blocks(request: Request, hit: Sequence[int]) -> int:
    """Blocks to allocate for what host memory holds of the request, after those in `hit`."""
    return _held(request.swapped[len(hit) :])


def _held(blocks: Sequence[int]) -> int:
    return len(blocks) - blocks.count(HOLE)

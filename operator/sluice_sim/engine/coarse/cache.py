"""The prefix cache of a coarse engine: an LRU list of the trace's prefix blocks over the whole pool."""

from collections import OrderedDict
from collections.abc import Sequence

from sluice_sim.traces.arrival import BLOCK_TOKENS


class CoarseCache:
    """Prefix blocks of the trace (512 tokens each), least recently used first."""

    def __init__(self, pool: int, block_size: int) -> None:
        """`pool`: tokens of the KV cache; `block_size`: tokens per block of the engine."""
        self._pool, self._size = pool, block_size
        self._seen: OrderedDict[int, None] = OrderedDict()

    @property
    def blocks(self) -> int:
        """Number of cached blocks of the engine's block size."""
        return len(self._seen) * (BLOCK_TOKENS // self._size)

    def hit(self, blocks: Sequence[int], known: int) -> int:
        """Cached leading tokens of a prompt of `known` tokens, without changing the LRU order.

        The last token is never counted: it must be computed."""
        if not blocks:
            return 0
        count = 0
        for block in blocks:
            if block not in self._seen:
                break
            count += 1
        return min(count * BLOCK_TOKENS, (known - 1) // self._size * self._size)

    def use(self, blocks: Sequence[int], cached: int) -> None:
        """Mark the blocks of a prompt's `cached` leading tokens as most recently used."""
        for block in reversed(blocks[: -(-cached // BLOCK_TOKENS)]):
            self._seen.move_to_end(block)

    def insert(self, blocks: Sequence[int]) -> None:
        """Insert the blocks of a computed prompt.

        Its last blocks are evicted before its first ones, which other prompts share, as in the engine."""
        for block in reversed(blocks):
            self._seen[block] = None
            self._seen.move_to_end(block)
        while len(self._seen) * BLOCK_TOKENS > self._pool:
            self._seen.popitem(last=False)

"""What a coarse engine's prefix cache holds: the trace's blocks by last use, over the whole pool."""

from collections import OrderedDict
from collections.abc import Sequence

from sluice_sim.traces.arrival import BLOCK_TOKENS


class CoarseCache:
    """Blocks of the trace, the oldest use first."""

    def __init__(self, pool: int, block_size: int) -> None:
        """`pool` and the engine's `block_size` in tokens."""
        self._pool, self._size = pool, block_size
        self._seen: OrderedDict[int, None] = OrderedDict()

    @property
    def blocks(self) -> int:
        """Of the engine's size."""
        return len(self._seen) * (BLOCK_TOKENS // self._size)

    def hit(self, blocks: Sequence[int], known: int) -> int:
        """Leading tokens of a prompt of `known` that are cached; its last token is always left to compute. Looks only."""
        if not blocks:
            return 0
        count = 0
        for block in blocks:
            if block not in self._seen:
                break
            count += 1
        return min(count * BLOCK_TOKENS, (known - 1) // self._size * self._size)

    def use(self, blocks: Sequence[int], cached: int) -> None:
        """A prompt begins with so many of its leading tokens from here: their blocks are the newest use."""
        for block in reversed(blocks[: -(-cached // BLOCK_TOKENS)]):
            self._seen.move_to_end(block)

    def remember(self, blocks: Sequence[int]) -> None:
        """A prompt is computed. Its end is forgotten before its beginning, which others share: as the engine frees its
        blocks."""
        for block in reversed(blocks):
            self._seen[block] = None
            self._seen.move_to_end(block)
        while len(self._seen) * BLOCK_TOKENS > self._pool:
            self._seen.popitem(last=False)

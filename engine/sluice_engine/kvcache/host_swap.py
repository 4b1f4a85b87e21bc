"""Blocks of preempted requests in host memory, where copying out and back takes less time than recomputing.

Host blocks are numbered after those of the pool, so that a copy is a pair of block numbers in either direction. Copies
are made in the order of the plans, before a step computes anything: a block may be reallocated in the plan that copies
it out. Blocks that have left a window are HOLEs in the copy too.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from sluice_engine.kvcache.block_pool import HOLE
from sluice_engine.kvcache.config import CacheConfig
from sluice_engine.request import Request

Copy = tuple[int, int]  # (source, target)
COPIES_PER_BLOCK: Final = 2  # out and back


class HostSwap:
    """The host's free blocks, and the copies that the next plan has to make."""

    def __init__(self, config: CacheConfig) -> None:
        self._config = config
        self._free = list(range(config.num_blocks + config.host_blocks - 1, config.num_blocks - 1, -1))
        self._copies: list[Copy] = []

    @property
    def free(self) -> int:
        """Host blocks without content."""
        return len(self._free)

    def saves_time(self, request: Request, recompute_seconds: float) -> bool:
        """Whether there is room for what the request has computed, and recomputing takes longer than copying out and
        back. Neither side counts the part of its prefix that stays cached."""
        config = self._config
        blocks = -(-request.computed // config.block_size) * config.groups - request.freed_leading * config.sliding
        if not 0 < blocks <= self.free or request.pooling or request.steered:
            return False
        return recompute_seconds > COPIES_PER_BLOCK * blocks * config.swap_block_seconds

    def copy_out(self, request: Request) -> None:
        """Copy what the request has computed; call before its blocks are released. The last known token is not copied,
        because it is computed again in any case."""
        request.swapped_tokens = min(request.computed, len(request.known) - 1)
        held = request.blocks[: -(-request.swapped_tokens // self._config.block_size) * self._config.groups]
        request.swapped = [HOLE if block == HOLE else self._free.pop() for block in held]
        self._copies += _pairs(held, request.swapped)

    def copy_back(self, request: Request, found: int) -> None:
        """Copy into the request's new blocks, after the first `found` ones, which were still cached."""
        self._copies += _pairs(request.swapped[found:], request.blocks[found : len(request.swapped)])
        self.drop(request)

    def drop(self, request: Request) -> None:
        """Free the request's host blocks."""
        self._free += [block for block in request.swapped if block != HOLE]
        request.swapped, request.swapped_tokens = [], 0

    def take_copies(self) -> list[Copy]:
        """The copies of the next plan, which are handed over once."""
        copies, self._copies = self._copies, []
        return copies

    def check(self, waiting: Iterable[Request]) -> None:
        """Raise RuntimeError unless each host block is either free or held by one waiting request."""
        held = [block for request in waiting for block in request.swapped if block != HOLE]
        every = range(self._config.num_blocks, self._config.num_blocks + self._config.host_blocks)
        if sorted(held + self._free) != list(every):
            raise RuntimeError(f"host blocks: held {len(held)} + free {self.free} is not total {len(every)}")


def _pairs(sources: Sequence[int], targets: Sequence[int]) -> list[Copy]:
    return [pair for pair in zip(sources, targets, strict=True) if HOLE not in pair]

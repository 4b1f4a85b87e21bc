"""What a plan does to whole blocks before anything is computed; where that fails, only those who need the blocks fail.

In one go it needs memory for what it moves. If that cannot be had, or a block's number is wrong, it is done block by
block, which needs none; what fails by itself is remembered until it has been made good.
"""

import logging
from collections.abc import Callable, Sequence

from sluice_engine.model.kv import KVCache
from sluice_engine.scheduler import Plan

_log = logging.getLogger(__name__)


class BlockWork:
    """Scrubs and copies for one plan after another."""

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache
        self._dirty: set[int] = set()  # blocks of failed requests that could not be zeroed yet
        self._lost: set[int] = set()  # host blocks that do not hold what was to be copied there

    def do(self, plan: Plan) -> set[int]:
        """Zero and copy what the plan says. Returns the blocks of the pool that do not hold what it takes for granted:
        whoever has one of them in this step cannot go on."""
        if plan.scrub or self._dirty:
            self._dirty = self._scrub(sorted(self._dirty.union(plan.scrub)))
        return self._dirty | self._copy(plan.copies) if plan.copies else set(self._dirty)

    def _scrub(self, blocks: Sequence[int]) -> set[int]:
        try:
            self._cache.scrub(blocks)
        except Exception:  # noqa: BLE001 - whatever it was, each block may be possible by itself
            _log.exception("zeroing %d blocks failed; trying one by one", len(blocks))
            return {block for block in blocks if not self._done(self._cache.scrub_one, block)}
        return set()

    def _copy(self, copies: Sequence[tuple[int, int]]) -> set[int]:
        """Those to and from host memory in their order, then those within the pool. What is copied from a block that
        is lost is lost as well."""
        within: list[tuple[int, int]] = []
        failed: set[int] = set()
        for source, target in copies:
            if max(source, target) < self._cache.first_host:
                within.append((source, target))
            elif source in self._lost or not self._done(self._cache.swap, source, target):
                failed.add(target)
            else:
                self._lost.discard(target)
        if within:
            failed |= self._copy_within(within)
        self._lost |= {block for block in failed if block >= self._cache.first_host}
        return {block for block in failed if block < self._cache.first_host}

    def _copy_within(self, pairs: Sequence[tuple[int, int]]) -> set[int]:
        """Tensor by tensor: one that was copied must not be copied again, for its sources may be targets as well."""
        failed: set[int] = set()
        for tensor in self._cache.tensors:
            try:
                self._cache.copy_within(tensor, pairs)
            except Exception:  # noqa: BLE001 - whatever it was, each block may be possible by itself
                _log.exception("copying %d blocks failed; trying one by one", len(pairs))
                failed |= {pair[1] for pair in pairs if not self._done(self._cache.copy_one, tensor, *pair)}
        return failed

    @staticmethod
    def _done(work: Callable[..., None], *arguments: object) -> bool:
        try:
            work(*arguments)
        except Exception:  # noqa: BLE001 - a request can fail, the loop cannot
            _log.exception("a block could not be written")
            return False
        return True

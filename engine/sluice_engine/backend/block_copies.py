"""Executes a plan's whole-block operations before the forward pass; a failure fails only the requests that need the
blocks.

The batched operation allocates temporary memory. If that allocation fails or a block number is invalid, the blocks are
processed one by one without allocation. A block that fails alone stays marked until a later operation repairs it.
"""

import logging
from collections.abc import Callable, Sequence

from sluice_engine.model.kv_cache import KVCache
from sluice_engine.scheduler import Plan

_log = logging.getLogger(__name__)


class BlockCopier:
    """Zeroes and copies blocks for successive plans."""

    def __init__(self, cache: KVCache) -> None:
        self._cache = cache
        self._dirty: set[int] = set()  # blocks of failed requests that are not zeroed yet
        self._lost: set[int] = set()  # host blocks whose copy failed

    def apply(self, plan: Plan) -> set[int]:
        """Zero and copy the plan's blocks. Returns the pool blocks with invalid content: a request that uses one of
        them in this step must fail.
        """
        if plan.scrub or self._dirty:
            self._dirty = self._scrub(sorted(self._dirty.union(plan.scrub)))
        return self._dirty | self._copy(plan.copies) if plan.copies else set(self._dirty)

    def _scrub(self, blocks: Sequence[int]) -> set[int]:
        try:
            self._cache.scrub(blocks)
        except Exception:  # noqa: BLE001 - each block may succeed alone
            _log.exception("zeroing %d blocks failed; trying one by one", len(blocks))
            return {block for block in blocks if not self._done(self._cache.scrub_one, block)}
        return set()

    def _copy(self, copies: Sequence[tuple[int, int]]) -> set[int]:
        """Copies to and from host memory in order, then copies within the pool. A copy from a failed host block fails
        too.
        """
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
        """Copy tensor by tensor. A tensor must not be copied twice, because its source blocks may also be targets."""
        failed: set[int] = set()
        for tensor in self._cache.tensors:
            try:
                self._cache.copy_within(tensor, pairs)
            except Exception:  # noqa: BLE001 - each block may succeed alone
                _log.exception("copying %d blocks failed; trying one by one", len(pairs))
                failed |= {pair[1] for pair in pairs if not self._done(self._cache.copy_one, tensor, *pair)}
        return failed

    @staticmethod
    def _done(work: Callable[..., None], *arguments: object) -> bool:
        try:
            work(*arguments)
        except Exception:  # noqa: BLE001 - one request's failure must not stop the loop
            _log.exception("a block could not be written")
            return False
        return True

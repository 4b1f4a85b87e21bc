"""Requests of one priority that may be demoted: which is demoted first, of all or of those with enough work.

A segment tree over the requests in order of work. Those whose removal frees enough time are a suffix of that order,
because removing more work frees more time.
"""

import math
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple


class DemotionKey(NamedTuple):
    """The smallest is demoted first: the tenant with the most excess usage, then the most work, then the first in the queue."""

    excess_usage: float  # weighted tokens, negated
    work: float  # seconds, negated
    position: int  # in the queue


_NONE: Final = DemotionKey(math.inf, math.inf, -1)


class Demotable:
    """A set of requests out of a known population. Every method is O(log population)."""

    def __init__(self, population: Mapping[int, tuple[float, float]]) -> None:
        """`population`: by index the request's (work, excess usage). The set is empty. O(n log n)."""
        ordered = sorted((work, index) for index, (work, _) in population.items())
        self._works = [work for work, _ in ordered]
        self._place = {index: place for place, (_, index) in enumerate(ordered)}
        self._keys = {index: DemotionKey(-excess, -work, index) for index, (work, excess) in population.items()}
        self._tree = [_NONE] * (2 * len(ordered))  # leaves from the middle on; a node is the least of its two children
        self.count = 0
        self.work = 0.0  # seconds, of all in the set; exact to rounding

    def add(self, index: int) -> None:
        """Add a request of the population to the set."""
        key = self._keys[index]
        self._set(index, key)
        self.count += 1
        self.work -= key.work

    def remove(self, index: int) -> None:
        """Remove a request from the set."""
        self._set(index, _NONE)
        self.count -= 1
        self.work += self._keys[index].work

    def first(self) -> DemotionKey | None:
        """The request that is demoted first; None where the set is empty."""
        return self._tree[1] if self.count else None

    def first_sufficient(self, suffices: Callable[[float], bool]) -> DemotionKey | None:
        """The request that is demoted first of those whose work suffices; None where no request's does. `suffices` must
        hold for more work wherever it holds for less."""
        low, high = 0, len(self._works)
        while low < high:
            middle = (low + high) // 2
            if suffices(self._works[middle]):
                high = middle
            else:
                low = middle + 1
        least, tree, left, right = _NONE, self._tree, low + len(self._works), 2 * len(self._works)
        while left < right:
            if left & 1:
                least = min(least, tree[left])
                left += 1
            if right & 1:
                right -= 1
                least = min(least, tree[right])
            left, right = left >> 1, right >> 1
        return None if least is _NONE else least

    def _set(self, index: int, key: DemotionKey) -> None:
        tree, node = self._tree, self._place[index] + len(self._works)
        tree[node] = key
        while node > 1:
            node >>= 1
            tree[node] = min(tree[2 * node], tree[2 * node + 1])

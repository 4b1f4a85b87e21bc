"""Requests of one priority that may be demoted: which is worth least, of all or of those with enough work.

A segment tree over the requests in order of work. Those whose removal frees enough time are a suffix of that order,
because removing more work frees more time.
"""

import math
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple


class Worth(NamedTuple):
    """The smallest is demoted first: the tenant furthest ahead, then the most work, then the first in the queue."""

    standing: float  # weighted tokens, negated
    work: float  # seconds, negated
    position: int  # in the queue


_NONE: Final = Worth(math.inf, math.inf, -1)


class Demotable:
    """A set of requests out of a known population. Every method is O(log population)."""

    def __init__(self, population: Mapping[int, tuple[float, float]]) -> None:
        """`population`: by index the request's (work, standing). The set is empty. O(n log n)."""
        ordered = sorted((work, index) for index, (work, _) in population.items())
        self._works = [work for work, _ in ordered]
        self._place = {index: place for place, (_, index) in enumerate(ordered)}
        self._worths = {index: Worth(-standing, -work, index) for index, (work, standing) in population.items()}
        self._tree = [_NONE] * (2 * len(ordered))  # leaves from the middle on; a node is the least of its two children
        self.count = 0
        self.work = 0.0  # seconds, of all in the set; exact to rounding

    def add(self, index: int) -> None:
        """The request is in the set from now on."""
        worth = self._worths[index]
        self._set(index, worth)
        self.count += 1
        self.work -= worth.work

    def remove(self, index: int) -> None:
        """The request is in the set no longer."""
        self._set(index, _NONE)
        self.count -= 1
        self.work += self._worths[index].work

    def least(self) -> Worth | None:
        """The request that is worth least; None where the set is empty."""
        return self._tree[1] if self.count else None

    def least_of(self, suffices: Callable[[float], bool]) -> Worth | None:
        """The one that is worth least of those whose work suffices; None where no request's does. `suffices` must hold
        for more work wherever it holds for less."""
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

    def _set(self, index: int, worth: Worth) -> None:
        tree, node = self._tree, self._place[index] + len(self._works)
        tree[node] = worth
        while node > 1:
            node >>= 1
            tree[node] = min(tree[2 * node], tree[2 * node + 1])

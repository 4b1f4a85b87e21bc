"""Takes the events of the watches into the cache, and wakes the worker of what has changed.

An event that the cache has seen already, such as the echo of the operator's own write, wakes no worker.
"""

from collections.abc import Callable, Mapping
from typing import Any

from sluice_operator.cluster.cache.store import ObjectCache, key_of
from sluice_operator.cluster.client import Key


class Feed:
    """The way from the watches to the cache. `wake(key)` requests a pass, `listed()` reports that a watch has listed."""

    def __init__(
        self, cache: ObjectCache, wake: Callable[[Key], None], listed: Callable[[], None] = lambda: None
    ) -> None:
        self.kinds = cache.kinds
        self._cache = cache
        self._wake = wake
        self._listed = listed

    def event(self, kind: str, change: str | None, thing: Mapping[str, Any]) -> None:
        """Take one event: ADDED, MODIFIED, DELETED, or None for an object of a watch's list.

        Such a list tells nothing of objects that were deleted in between, so the cache must be listed again.
        """
        if change is None:
            self._listed()
        changed = self._cache.remove(kind, thing) if change == "DELETED" else self._cache.put(kind, thing)
        key = key_of(kind, thing)
        if changed and key is not None:
            self._wake(key)

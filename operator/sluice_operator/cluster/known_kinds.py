"""Which optional kinds the API server has. A CustomResourceDefinition may be installed or removed while the operator runs.

Every client may read an API group's resources, so this needs no permission. One answer serves all resources for minutes.
"""

from collections.abc import Awaitable, Callable
from typing import Final

KEPT_SECONDS: Final = 300.0  # an object of a kind installed meanwhile is made so much later


class KnownKinds:
    """Answers by group and version, each kept for `KEPT_SECONDS`."""

    def __init__(self, read: Callable[[str], Awaitable[frozenset[str]]], clock: Callable[[], float]) -> None:
        """`read(path)` returns the plurals of a group's version, and none where the server has no such group."""
        self._read = read
        self._clock = clock
        self._known: dict[str, tuple[float, frozenset[str]]] = {}

    async def has(self, group_version: str, plural: str) -> bool:
        """Return whether the group's version, as an API path, has this plural. Raises what `read` raises."""
        read_at, plurals = self._known.get(group_version, (-KEPT_SECONDS, frozenset()))
        if self._clock() - read_at >= KEPT_SECONDS or group_version not in self._known:
            plurals = await self._read(group_version)
            self._known[group_version] = (self._clock(), plurals)
        return plural in plurals

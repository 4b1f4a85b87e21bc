"""How many fleets upgrade windows and a new key of the operator move at the same time, over all resources of the operator.

The count is read from the Deployments, so a restarted operator goes on with it. What this process has granted is
remembered beside that, because a list may lag behind a write.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sluice import contract
from sluice_operator.cluster.client import ClusterClient, Key, Object
from sluice_operator.revisions.record import read_record

_ENGINES: Final = {contract.LABEL_NAME: contract.ENGINE_APP, contract.LABEL_MANAGED_BY: contract.MANAGED_BY}


@dataclass(slots=True)
class UpgradeSlots:
    """The fleets that an upgrade window or a new key moves now."""

    limit: int
    _granted: set[Key] = field(default_factory=set)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def take(self, key: Key, cluster: ClusterClient, namespaces: Sequence[str]) -> bool:
        """Return True if the fleet may move now: it has a slot, or takes a free one. Raises ClusterError.

        `namespaces` are those that the operator watches; none: all.
        """
        async with self._turn:
            if key in self._granted:
                return True
            if len(self._granted) >= self.limit:
                return False
            lists = [await cluster.list("Deployment", namespace, _ENGINES) for namespace in namespaces or ("",)]
            moving = {_key(each) for deployments in lists for each in deployments if _moves(each)}
            if len((moving | self._granted) - {key}) >= self.limit:
                return False
            self._granted.add(key)
            return True

    def release(self, key: Key) -> None:
        """Give back the slot of a fleet that does not move (any more)."""
        self._granted.discard(key)


def _moves(deployment: Object) -> bool:
    """True while these pods are moved, or that has stopped without success. No pod, no move."""
    record = read_record(deployment)
    if not deployment["spec"].get("replicas", 1):
        return False
    return record is not None and record.moves


def _key(deployment: Object) -> Key:
    return Key(str(deployment["metadata"]["namespace"]), str(deployment["metadata"]["labels"][contract.LABEL_INSTANCE]))

"""Kinds without a watch: what others change of them is seen with the next list, where the cluster has the kind."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from sluice import contract
from sluice_operator.cluster.cache import ObjectCache, Polling
from sluice_operator.cluster.cache.polling import INTERVAL
from sluice_operator.cluster.client import ClusterError, Key, Object

KIND = "PodMonitor"
RESTORED = 30.0  # seconds within which a child is restored
PASS = 5.0  # seconds between two passes


def monitor(name: str, version: int) -> Object:
    labels = {contract.LABEL_NAME: contract.ENGINE_APP, contract.LABEL_INSTANCE: name}
    return {"metadata": {"name": name, "namespace": "ns", "resourceVersion": str(version), "labels": labels}}


@dataclass
class Cluster:
    """PodMonitors at a version of the API server."""

    version: int = 10
    things: Sequence[Object] = ()
    is_served: bool = True
    error: ClusterError | None = None
    listed: int = 0
    woken: list[Key] = field(default_factory=list)
    cache: ObjectCache = field(default_factory=lambda: ObjectCache((KIND,)))

    @property
    def polling(self) -> Polling:
        return Polling(self.cache, (KIND,), self._list, self._serves, self.woken.append)

    async def _serves(self, _kind: str) -> bool:
        return self.is_served

    async def _list(self, _kind: str) -> tuple[list[Object], str]:
        self.listed += 1
        if self.error is not None:
            raise self.error
        return list(self.things), str(self.version)


async def test_what_others_change_and_delete_wakes_its_resource() -> None:
    cluster = Cluster(things=(monitor("a", 1), monitor("b", 2)))
    await cluster.polling.list(KIND)
    cluster.woken.clear()
    await cluster.polling.list(KIND)
    assert cluster.woken == []
    cluster.things, cluster.version = (monitor("a", 11),), 12
    await cluster.polling.list(KIND)
    assert cluster.woken == [Key("ns", "a"), Key("ns", "b")]
    assert cluster.cache.get(KIND, "ns", "b") is None
    assert INTERVAL + PASS < RESTORED


async def test_a_kind_that_the_cluster_has_not_is_not_listed_and_one_that_may_not_be_listed_is_read_by_requests() -> (
    None
):
    cluster = Cluster(is_served=False)
    await cluster.polling.list(KIND)
    assert cluster.listed == 0 and not cluster.cache.holds(KIND)
    cluster.is_served, cluster.error = True, ClusterError("podmonitors is forbidden", status=403)
    await cluster.polling.list(KIND)
    assert cluster.listed == 1 and not cluster.cache.holds(KIND)

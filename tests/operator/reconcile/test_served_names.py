"""Two resources with one served name: the elder serves it, and finding that out costs one list for all."""

from collections.abc import Mapping
from dataclasses import dataclass

from sluice import contract
from sluice_operator.api import parse
from sluice_operator.cluster.client import Key, Object
from sluice_operator.reconcile.context import Target
from sluice_operator.reconcile.served_names import ServedNames
from tests.operator.fake_cluster import Clock, FakeCluster, manifest, operator

OURS = {"uri": "pvc://models/tiny", "servedName": "llama"}


@dataclass
class Counting(FakeCluster):
    """Counts the lists of resources."""

    lists: int = 0

    async def list(self, kind: str, namespace: str, labels: Mapping[str, str]) -> list[Object]:
        self.lists += kind == contract.KIND
        return await super().list(kind, namespace, labels)


def named(name: str, served: str) -> Object:
    made = manifest(model=OURS | {"servedName": served})
    made["metadata"] |= {"name": name, "creationTimestamp": "2026-11-21T08:00:00Z"}
    return made


def target(key: Key, document: Object) -> Target:
    return Target(key, document, parse(document, strict=False))


async def test_a_thousand_resources_are_one_list() -> None:
    cluster, clock = Counting(), Clock()
    for number in range(1000):
        cluster.store.apply(named(f"m{number}", f"model-{number}"))
    context, names = operator(cluster, clock=clock).context, ServedNames()
    for number in range(1000):
        document = cluster.store.get(contract.KIND, "ns", f"m{number}") or {}
        assert await names.conflict(target(Key("ns", f"m{number}"), document), context) == ""
    assert cluster.lists == 1
    clock.now += 31
    document = cluster.store.get(contract.KIND, "ns", "m1") or {}
    await names.conflict(target(Key("ns", "m1"), document), context)
    assert cluster.lists == 2


async def test_a_new_resource_conflicts_with_the_older_one_until_that_is_deleted() -> None:
    cluster, clock = Counting(), Clock()
    context, names = operator(cluster, clock=clock).context, ServedNames()
    for name in ("aaa", "bbb"):
        cluster.store.apply(named(name, "llama"))
        document = cluster.store.get(contract.KIND, "ns", name) or {}
        said = await names.conflict(target(Key("ns", name), document), context)
        clock.now += 5
    assert "aaa already serves the name 'llama'" in said
    cluster.store.delete(contract.KIND, "ns", "aaa")
    clock.now += 31
    assert await names.conflict(target(Key("ns", "bbb"), document), context) == ""

"""Two resources with one served name: the older one serves it."""

from sluice import contract
from sluice_operator.api import parse
from sluice_operator.cluster.client import Key, Object
from sluice_operator.reconcile.context import Target
from sluice_operator.reconcile.served_names import name_conflict
from tests.operator.fake_cluster import FakeCluster, manifest, operator


def named(name: str, served: str) -> Object:
    made = manifest(model={"uri": "pvc://models/tiny", "servedName": served})
    made["metadata"] |= {"name": name, "creationTimestamp": "2026-11-21T08:00:00Z"}
    return made


async def conflict(cluster: FakeCluster, name: str) -> str:
    document = cluster.store.get(contract.KIND, "ns", name) or {}
    target = Target(Key("ns", name), document, parse(document, strict=False))
    return await name_conflict(target, operator(cluster).context)


async def test_a_new_resource_conflicts_with_the_older_one_until_that_is_deleted() -> None:
    cluster = FakeCluster()
    for name in ("aaa", "bbb"):
        cluster.store.apply(named(name, "llama"))
    assert await conflict(cluster, "aaa") == ""
    assert "aaa already serves the name 'llama'" in await conflict(cluster, "bbb")
    cluster.store.delete(contract.KIND, "ns", "aaa")
    assert await conflict(cluster, "bbb") == ""


async def test_the_name_of_the_resource_is_its_served_name_without_another() -> None:
    cluster = FakeCluster()
    cluster.store.apply(named("bbb", "aaa"))
    plain = named("aaa", "")
    del plain["spec"]["model"]["servedName"]
    cluster.store.apply(plain)
    assert "aaa already serves the name 'aaa'" in await conflict(cluster, "bbb")

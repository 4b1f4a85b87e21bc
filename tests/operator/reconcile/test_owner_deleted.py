"""A resource that is deleted during a pass gets no new children, and the pass ends without an error."""

from collections.abc import Callable

import pytest

from sluice import contract
from sluice_operator.cluster.client import Object
from sluice_operator.reconcile.reconciler import GONE
from tests.operator.fake_cluster import KEY, FakeCluster, cluster_with, operator, settle

FOREGROUND = {"deletionTimestamp": "2026-11-21T09:00:00Z", "finalizers": ["foregroundDeletion"]}


def delete_in_foreground(cluster: FakeCluster) -> None:
    """The API server marks the resource, and the garbage collector deletes its children."""
    cluster.store.apply(cluster.resource | {"metadata": cluster.resource["metadata"] | FOREGROUND})
    collect(cluster)


def delete(cluster: FakeCluster) -> None:
    cluster.store.delete(contract.KIND, KEY.namespace, KEY.name)
    collect(cluster)


def recreate(cluster: FakeCluster) -> None:
    spec = cluster.resource["spec"]
    delete(cluster)
    cluster.store.apply(cluster_with().resource | {"spec": spec})


def collect(cluster: FakeCluster) -> None:
    for kind in ("ConfigMap", "ServiceAccount", "Service", "PodDisruptionBudget", "Deployment", "Secret"):
        for child in cluster.store.list_all(kind):
            cluster.store.delete(kind, KEY.namespace, child["metadata"]["name"])


class DeletedDuringThePass(FakeCluster):
    """The deletion happens just after the pass has read the resource."""

    deletion: Callable[[FakeCluster], None] | None = None

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        found = await super().get(kind, namespace, name)
        if kind == contract.KIND and self.deletion is not None:
            deletion, self.deletion = self.deletion, None
            deletion(self)
        return found


@pytest.mark.parametrize("deletion", [delete_in_foreground, delete, recreate])
@pytest.mark.parametrize("passes", [0, 3], ids=["before the first pass", "with children"])
async def test_a_pass_creates_no_child_of_a_resource_that_is_deleted_meanwhile(
    deletion: Callable[[FakeCluster], None], passes: int
) -> None:
    cluster = DeletedDuringThePass(store=cluster_with().store)
    await settle(cluster, passes=passes)
    cluster.writes.clear()
    cluster.deletion = deletion
    reconciler = operator(cluster)
    assert await reconciler.reconcile(KEY) == GONE
    assert cluster.writes == [] and cluster.deployment == {}
    assert KEY not in reconciler.states


async def test_a_recreated_resource_gets_its_children_in_the_next_pass() -> None:
    cluster = DeletedDuringThePass(store=cluster_with().store)
    cluster.deletion = recreate
    reconciler = operator(cluster)
    await reconciler.reconcile(KEY)
    assert await reconciler.reconcile(KEY) < GONE
    assert cluster.deployment["metadata"]["ownerReferences"][0]["uid"] == cluster.resource["metadata"]["uid"]

"""Whose pods count: those that a ReplicaSet of the resource's own Deployment controls, whatever labels others carry."""

from typing import Any

import pytest

from sluice_operator.cluster.client import Object
from tests.operator.fake_cluster import KEY, Clock, Engines, cluster_with, deployed, operator, pod
from tests.operator.reconcile.test_problems import CRASHED

FOREIGN: list[list[Object]] = [
    [],
    [{"kind": "ReplicaSet", "uid": "set-of-another-deployment", "controller": True}],
    [{"kind": "ReplicaSet", "uid": "set-v1", "controller": False}],
]


def foreign(references: list[Object], **status: Any) -> Object:
    """A pod with our labels that nothing of ours controls."""
    made = pod("foreign", ready=not status, **status)
    made["metadata"]["ownerReferences"] = references
    return made


@pytest.mark.parametrize("references", FOREIGN, ids=["no owner", "another ReplicaSet", "no controller"])
async def test_a_foreign_pod_with_our_labels_is_neither_counted_nor_scraped_nor_sent_the_token(
    references: list[Object],
) -> None:
    engines, clock = Engines(), Clock()
    cluster = deployed(cluster_with(), pod("a"), foreign(references))
    reconciler = operator(cluster, engines, clock)
    for _ in range(3):
        await reconciler.reconcile(KEY)
        clock.now += 5
    assert (cluster.status["replicas"], cluster.status["readyReplicas"]) == (1, 1)
    assert set(engines.scraped) == {"a"}
    assert {name for name, _, _ in engines.patched} == {"a"}


@pytest.mark.parametrize("references", FOREIGN, ids=["no owner", "another ReplicaSet", "no controller"])
async def test_a_foreign_pod_that_crashes_is_not_deleted(references: list[Object]) -> None:
    clock = Clock()
    cluster = deployed(cluster_with(), foreign(references, **CRASHED))
    reconciler = operator(cluster, clock=clock)
    for _ in range(30):
        await reconciler.reconcile(KEY)
        clock.now += 5
    assert [each["metadata"]["name"] for each in cluster.pods] == ["foreign"]
    assert cluster.condition("Ready")["reason"] == "Starting"


async def test_pods_of_a_foreign_deployment_with_our_name_are_not_ours() -> None:
    engines = Engines()
    cluster = cluster_with()
    foreign = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "chat", "namespace": "ns"}}
    cluster.store.create(foreign | {"spec": {"replicas": 1}})
    cluster.pods = [pod("a")]
    reconciler = operator(cluster, engines)
    await reconciler.reconcile(KEY)
    await reconciler.reconcile(KEY)
    assert (cluster.status["readyReplicas"], engines.scraped, engines.patched) == (0, [], [])
    assert cluster.condition("Ready")["reason"] == "Conflict"


async def test_pods_of_every_version_of_our_deployment_count() -> None:
    cluster = deployed(cluster_with(), pod("old"), pod("new", hash_="v2"))
    await operator(cluster).reconcile(KEY)
    assert cluster.status["readyReplicas"] == 2

"""An operator that is killed between any two writes: its successor ends where it would have ended."""

import copy
from typing import Any

import pytest

from sluice import contract
from sluice_operator.cluster.client import Object
from tests.operator.fake_cluster import (
    KEY,
    FakeCluster,
    Killed,
    cluster_with,
    manifest,
    operator,
    settle,
)


def bare(cluster: FakeCluster) -> dict[str, Any]:
    """The final state without what differs between any two runs: versions, uids, times, the token and the history."""

    def strip(item: Object) -> Object:
        item = copy.deepcopy(item)
        for field in ("resourceVersion", "uid", "creationTimestamp", "ownerReferences", "managedFields"):
            item["metadata"].pop(field, None)
        item.pop("data", None)
        status = item.pop("status", {})
        status.pop("decisions", None)
        for condition in status.get("conditions", []):
            condition.pop("lastTransitionTime")
        return item | {"status": status}

    kinds = ("Deployment", "Service", "ServiceAccount", "PodDisruptionBudget", "Secret", contract.KIND)
    return {kind: [strip(item) for item in cluster.store.list_all(kind)] for kind in kinds}


async def story(cluster: FakeCluster) -> None:
    """Created, then asked for more."""
    await settle(cluster)
    cluster.edit(scaling={"minReplicas": 3, "maxReplicas": 4})
    await settle(cluster)


def same_world() -> FakeCluster:
    """The same resource each time: the admin token, and the name of its Secret, follow from the uid."""
    resource = manifest()
    resource["metadata"]["uid"] = "5f7d1c8e-0000-4000-8000-000000000001"
    return cluster_with(resource)


async def test_a_process_killed_after_any_write_is_followed_by_the_same_state() -> None:
    undisturbed = same_world()
    await story(undisturbed)
    wanted = bare(undisturbed)
    for k in range(1, len(undisturbed.writes) + 1):
        cluster = same_world()
        cluster.kill_after = k
        edited = False
        try:
            await settle(cluster)
            cluster.edit(scaling={"minReplicas": 3, "maxReplicas": 4})
            edited = True
            await settle(cluster)
        except Killed:
            cluster.kill_after = None
        if not edited:
            await settle(cluster)
            cluster.edit(scaling={"minReplicas": 3, "maxReplicas": 4})
        await settle(cluster)
        assert bare(cluster) == wanted, f"killed after write {k}: {cluster.writes[k - 1]}"
        replicas = [d["to"] for d in cluster.status["decisions"] if d["kind"] == "replicas"]
        assert replicas[-1] == 3


async def test_a_new_process_records_a_decision_whose_status_write_was_lost() -> None:
    cluster = cluster_with()
    await settle(cluster)
    cluster.edit(scaling={"minReplicas": 3, "maxReplicas": 4})
    reconciler = operator(cluster)
    cluster.writes.clear()
    cluster.kill_after = 1 + 6  # Secret; ConfigMap, SA, two Services, PDB, Deployment
    with pytest.raises(Killed):
        for _ in range(3):
            await reconciler.reconcile(KEY)
    cluster.kill_after = None
    assert cluster.deployment["spec"]["replicas"] == 3
    await settle(cluster)
    last = [d for d in cluster.status["decisions"] if d["kind"] == "replicas"][-1]
    assert (last["from"], last["to"]) == (1, 3)

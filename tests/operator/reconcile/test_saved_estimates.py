"""The autoscaler's estimates in a ConfigMap of the resource: read by the next operator, written rarely, never fatal."""

import copy
import json
from typing import Any

import pytest

from sluice_operator.cluster.client import ClusterError, Object
from sluice_operator.render import names
from sluice_operator.render.estimates import ESTIMATES_KEY
from tests.operator.fake_cluster import (
    KEY,
    Clock,
    Engines,
    FakeCluster,
    cluster_with,
    deployed,
    exposition,
    manifest,
    operator,
    pod,
)

NAME = names.estimates(KEY.name)
WRITE = f"apply ConfigMap {NAME}"


def stored(cluster: FakeCluster) -> Object:
    found = cluster.store.get("ConfigMap", KEY.namespace, NAME)
    assert found is not None
    return found


def starts(cluster: FakeCluster) -> list[Any]:
    text = stored(cluster)["data"][ESTIMATES_KEY]
    assert len(text) < 8192
    return list(json.loads(text)["cold_starts"])


async def test_the_resource_owns_the_config_map_and_a_steady_state_writes_it_once() -> None:
    cluster, clock = deployed(cluster_with(), pod("a")), Clock()
    reconciler = operator(cluster, clock=clock)
    for _ in range(20):
        await reconciler.reconcile(KEY)
        clock.now += 5
    assert cluster.writes.count(WRITE) == 1
    assert [owner["uid"] for owner in stored(cluster)["metadata"]["ownerReferences"]] == [
        cluster.resource["metadata"]["uid"]
    ]
    await operator(cluster, clock=clock).reconcile(KEY)  # the next operator finds what it would write
    assert cluster.writes.count(WRITE) == 1


async def test_a_large_fleet_whose_starts_come_one_by_one_writes_them_seldom() -> None:
    cluster, clock = cluster_with(manifest(scaling={"minReplicas": 24, "maxReplicas": 24})), Clock()
    reconciler = operator(cluster, Engines(exposition() + 'sluice_load_phase_seconds{phase="load"} 7\n'), clock)
    for number in range(24):
        cluster.pods = [*cluster.pods, pod(f"chat-{number}")]
        await reconciler.reconcile(KEY)
        clock.now += 5
    assert 2 <= cluster.writes.count(WRITE) <= 5
    assert len(starts(cluster)) == 16


async def test_a_short_readiness_loss_is_no_cold_start() -> None:
    cluster, clock = deployed(cluster_with(), pod("a")), Clock()
    reconciler = operator(cluster, clock=clock)
    await reconciler.reconcile(KEY)
    learned = starts(cluster)
    assert [(name, start["total"]) for name, start in learned] == [("a", 10.0)]
    assert cluster.status["coldStartSeconds"]["total"] == "10"
    ready = cluster.pods[0]["status"]["conditions"][1]
    for status in ("False", "True"):
        ready.update(status=status, lastTransitionTime="2026-11-21T11:00:00Z")
        clock.now += 60
        await reconciler.reconcile(KEY)
    cluster.pods.append(copy.deepcopy(cluster.pods[0]))
    cluster.pods[1]["metadata"]["name"] = "b"  # whose start its predecessor did not know
    await operator(cluster, clock=clock).reconcile(KEY)
    assert ("a", 10.0) in [(name, start["total"]) for name, start in starts(cluster)]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cold_starts": 7}', '{"remembered": "x"}', "[" * 100_000])
async def test_unreadable_estimates_are_reported_once_and_replaced(text: str) -> None:
    cluster, clock = deployed(cluster_with(), pod("a")), Clock()
    await operator(cluster, clock=clock).reconcile(KEY)
    cluster.store.apply(stored(cluster) | {"data": {ESTIMATES_KEY: text}}, owner=cluster.resource)
    reconciler = operator(cluster, clock=clock)
    for _ in range(3):
        await reconciler.reconcile(KEY)
        clock.now += 60
    reported = [message for reason, message, _ in cluster.events if reason == "EstimatesNotKept"]
    assert len(reported) == 1 and "is not readable" in reported[0]
    assert [name for name, _ in starts(cluster)] == ["a"]


@pytest.mark.parametrize("refusal", ["foreign", "quota"])
async def test_estimates_that_cannot_be_written_stop_nothing(refusal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, clock = deployed(cluster_with(), pod("a")), Clock()
    allowed = cluster.apply
    if refusal == "foreign":
        other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": KEY.namespace}}
        cluster.store.apply(other)

    async def refuses(wanted: Object, *, owner: Object | None = None) -> Object:
        if refusal == "quota" and wanted["metadata"]["name"] == NAME:
            raise ClusterError("exceeded quota", status=403)
        return await allowed(wanted, owner=owner)

    monkeypatch.setattr(cluster, "apply", refuses)
    reconciler = operator(cluster, clock=clock)
    for _ in range(3):
        await reconciler.reconcile(KEY)
        clock.now += 60
    assert [reason for reason, _, _ in cluster.events].count("EstimatesNotKept") == 1
    assert cluster.condition("Ready")["status"] == "True"
    assert cluster.deployment["spec"]["replicas"] == 1

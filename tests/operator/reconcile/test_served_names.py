"""Two resources with one served name: the older one serves it. In two namespaces both run, and the younger one is told."""

from dataclasses import replace
from typing import Any

import pytest

from sluice import contract
from sluice_operator.api import parse
from sluice_operator.cluster.client import Key, Object
from sluice_operator.reconcile.context import Target
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.reconcile.served_names import name_conflict
from tests.operator.fake_cluster import KEY, FakeCluster, cluster_with, deployed, manifest, operator, pod


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


async def passes(cluster: FakeCluster, gateway_service: str = "sluice-gateway") -> None:
    """Some passes of one operator, beside the release's gateway, which serves all namespaces."""
    context = operator(cluster).context
    cluster.held_requests = 0 if gateway_service else None
    reconciler = Reconciler(replace(context, settings=replace(context.settings, gateway_service=gateway_service)))
    for _ in range(4):
        await reconciler.reconcile(KEY)


def elsewhere(**spec: Any) -> Object:
    """A resource of another namespace, created in the same second, with a name before `chat`."""
    other = manifest(**{"model": {"uri": "pvc://models/tiny", "servedName": "chat"}} | spec)
    other["metadata"] |= {"name": "aaa", "namespace": "team"}
    return other


async def test_the_younger_of_two_namespaces_runs_and_says_that_the_gateway_serves_the_older() -> None:
    cluster = deployed(cluster_with(), pod("a"))
    cluster.store.apply(elsewhere())
    await passes(cluster)
    ready = cluster.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "Conflict")
    assert "serves the name 'chat' by the older LLMDeployment team/aaa" in ready["message"]
    assert "Set spec.model.servedName" in ready["message"]
    assert cluster.condition("Available")["status"] == "True" and cluster.deployment["spec"]["replicas"] >= 1
    assert [warning for reason, _, warning in cluster.events if reason == "Conflict"] == [True]
    cluster.store.delete(contract.KIND, "team", "aaa")
    await passes(cluster)
    assert cluster.condition("Ready")["reason"] == "Serving"


@pytest.mark.parametrize("spec", [{"model": {"uri": "pvc://models/tiny", "servedName": "another"}}, None], ids=str)
async def test_a_name_that_no_gateway_shares_is_no_conflict(spec: dict[str, Any] | None) -> None:
    cluster = deployed(cluster_with(), pod("a"))
    cluster.store.apply(elsewhere(**spec or {}))
    await passes(cluster, "sluice-gateway" if spec else "")  # without a gateway, each has its own Service
    assert cluster.condition("Ready")["reason"] == "Serving"


async def test_a_model_that_clients_reach_by_https_needs_no_name_of_the_gateway() -> None:
    cluster = deployed(cluster_with(manifest(auth={"tlsSecretRef": {"name": "tls"}})), pod("a"))
    cluster.store.apply(elsewhere())
    await passes(cluster)
    assert cluster.condition("Ready")["reason"] != "Conflict"


async def test_the_younger_of_two_namespaces_keeps_a_replica_because_no_request_could_start_one() -> None:
    cluster = deployed(cluster_with(manifest(scaling={"minReplicas": 0, "maxReplicas": 2})), pod("a"))
    cluster.store.apply(elsewhere())
    await passes(cluster)
    assert "ZeroNeedsFrontDoor" in {reason for reason, _, _ in cluster.events}

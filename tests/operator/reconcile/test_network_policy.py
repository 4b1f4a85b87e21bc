"""The NetworkPolicy as a child: made before the pods, restored, and removed when the chart turns it off."""

from dataclasses import replace

import pytest

from sluice_operator.cluster.client import Object
from sluice_operator.reconcile.reconciler import Reconciler
from sluice_operator.settings import NetworkPeers
from tests.operator.fake_cluster import KEY, Clock, FakeCluster, cluster_with, operator

PEERS = NetworkPeers(admin=({"podSelector": {"matchLabels": {"app": "operator"}}},))
NAME = "chat-engine"


def operator_with(peers: NetworkPeers | None, cluster: FakeCluster, clock: Clock | None = None) -> Reconciler:
    context = operator(cluster, clock=clock).context
    return Reconciler(replace(context, settings=replace(context.settings, network_peers=peers)))


def policy(cluster: FakeCluster) -> Object:
    return cluster.store.get("NetworkPolicy", KEY.namespace, NAME) or {}


async def test_the_policy_is_written_before_the_pods() -> None:
    cluster = cluster_with()
    await operator_with(PEERS, cluster).reconcile(KEY)
    assert policy(cluster)["spec"]["ingress"][1]["from"] == list(PEERS.admin)
    written = [cluster.writes.index(f"apply {what}") for what in (f"NetworkPolicy {NAME}", "Deployment chat")]
    assert written == sorted(written)


async def test_a_policy_that_is_changed_or_deleted_by_hand_is_restored() -> None:
    cluster, clock = cluster_with(), Clock()
    reconciler = operator_with(PEERS, cluster, clock)
    await reconciler.reconcile(KEY)
    made = policy(cluster)["spec"]
    opened = {"podSelector": made["podSelector"], "policyTypes": ["Ingress"], "ingress": [{}], "egress": [{}]}
    for by_hand in (lambda: cluster.store.apply(policy(cluster) | {"spec": opened}), lambda: _delete(cluster)):
        by_hand()
        assert policy(cluster).get("spec") != made
        clock.now += 15.0
        await reconciler.reconcile(KEY)
        assert policy(cluster)["spec"] == made


def _delete(cluster: FakeCluster) -> None:
    cluster.store.delete("NetworkPolicy", KEY.namespace, NAME)


async def test_an_operator_without_policies_removes_the_one_of_its_predecessor_once() -> None:
    cluster = cluster_with()
    await operator_with(PEERS, cluster).reconcile(KEY)
    successor = operator_with(None, cluster)
    cluster.writes.clear()
    await successor.reconcile(KEY)
    assert cluster.writes.count(f"delete NetworkPolicy {NAME}") == 1
    cluster.writes.clear()
    await successor.reconcile(KEY)
    assert not any("NetworkPolicy" in what for what in cluster.writes)


@pytest.mark.parametrize(
    ("clients", "url"),
    [
        ("Always", "http://chat.ns.svc:8000/v1"),
        ("TLS", "http://gw.sluice.svc:80/v1"),
        ("Never", "http://gw.sluice.svc:80/v1"),
    ],
)
async def test_the_url_of_the_status_is_one_that_the_policy_opens_to_clients(clients: str, url: str) -> None:
    cluster, gateway = cluster_with(), "http://gw.sluice.svc:80"
    peers = replace(PEERS, namespace_clients=clients)
    reconciler = operator_with(peers, cluster)
    context = replace(reconciler.context, settings=replace(reconciler.context.settings, gateway_url=gateway))
    await Reconciler(context).reconcile(KEY)
    assert cluster.status["url"] == url
    cluster.edit(replicas=-1)
    await Reconciler(context).reconcile(KEY)
    assert cluster.status["url"] == url


async def test_a_users_policy_of_that_name_is_not_removed() -> None:
    cluster = cluster_with()
    metadata = {"name": NAME, "namespace": KEY.namespace}
    cluster.store.apply(
        {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": {}}
    )
    await operator_with(None, cluster).reconcile(KEY)
    assert not any("NetworkPolicy" in what for what in cluster.writes)

"""Part 3, continued: each pod is evicted and a node is reclaimed under load by the official client; no request fails."""

import pytest

from e2e.framework import images, jobs
from e2e.framework.cluster import Cluster, Object, Recorder, is_ready, wait_for
from e2e.framework.disruption import evict, free_nodes, may_taint, tainted, wait_until_ended
from e2e.framework.operator_pod import Operator
from e2e.framework.settings import Settings

CLIENTS = 4  # of each load
AT_MOST = 900  # seconds of the loads; the last test ends them


@pytest.fixture(scope="module")
def pair(cluster: Cluster, operator: Operator) -> None:
    """Two replicas serve."""
    cluster.patch("llmd", "chat", {"spec": {"scaling": {"mode": "Auto", "minReplicas": 2, "maxReplicas": 2}}})
    wait_for("2 pods serve", lambda: len(serving(cluster)) == len(cluster.pods("chat")) == 2, timeout=300)


@pytest.fixture(scope="module")
def loads(cluster: Cluster, operator: Operator, settings: Settings, pair: None) -> list[jobs.Load]:
    """Official clients of the model's own Service and of the gateway, from before the first eviction on."""
    urls = {"disrupted": f"http://chat.{cluster.namespace}.svc:8000", "disrupted-routed": operator.gateway_url}
    image = images.make_client(settings)
    return [jobs.start_official(cluster, name, image, "chat", url, CLIENTS, AT_MOST) for name, url in urls.items()]


def test_every_pod_is_evicted_under_load_and_one_always_serves(
    cluster: Cluster, loads: list[jobs.Load], recorder: Recorder
) -> None:
    """As `kubectl drain` does with one node after the other: a pod drains, and its replacement serves."""
    began = recorder.now()
    for pod in serving(cluster):
        evict(cluster, pod)
        wait_until_ended(cluster, pod, "chat")
        wait_for("2 pods serve again", lambda: len(serving(cluster)) == 2, timeout=240)
    assert all(load.is_running() for load in loads)
    assert 0.0 not in recorder.values("ready", since=began).get("ready", [])


def test_a_reclaimed_node_ends_a_pod_and_the_other_one_serves(cluster: Cluster, loads: list[jobs.Load]) -> None:
    """As a spot node that is taken back: NoExecute asks no PodDisruptionBudget, and the replacement finds no node.

    All other pods of the node tolerate the taint, so it stands for the one node of the reclaimed pod.
    """
    if not may_taint():
        pytest.skip("this user may not taint nodes and change pods of all namespaces: no node can be reclaimed here")
    lost, survivor = serving(cluster)
    if others := free_nodes(cluster, but=lost["spec"]["nodeName"]):
        pytest.skip(f"the replacement would find a node: {', '.join(others)}")
    with tainted(lost):
        wait_until_ended(cluster, lost, "chat")
        assert [pod["metadata"]["uid"] for pod in serving(cluster)] == [survivor["metadata"]["uid"]]
        assert (cluster.deployment("chat") or {})["spec"]["replicas"] == 2
    wait_for("its replacement serves once there is a node", lambda: len(serving(cluster)) == 2, timeout=240)


def test_no_request_failed_while_pods_were_evicted_and_a_node_was_reclaimed(loads: list[jobs.Load]) -> None:
    for load in loads:
        account = load.finish()
        assert account["failed"] == []
        assert account["requests"] >= 10 * CLIENTS


def serving(cluster: Cluster) -> list[Object]:
    """chat's pods that are ready and not being deleted."""
    return [pod for pod in cluster.pods("chat") if is_ready(pod)]

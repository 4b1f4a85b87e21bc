"""Part 5: an operator starts where there are 1,000 resources and 5,000 pods.

It is the last part, because Kubernetes needs minutes to remove them, and nothing waits for that.
"""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.framework import manifests
from e2e.framework.cluster import CUSTOM, Cluster, Object, name_of, run, say, wait_for
from e2e.framework.operator_pod import Operator
from sluice import contract
from tests.bench.operator_scale import api_requests
from tests.bench.operator_scale.scale import FIRST_PASS_SECONDS, MEGABYTES, REQUESTS_PER_SECOND

MANY = 1000  # resources with all their children
LARGE = 100  # of them, which have all the pods: Kubernetes writes little for the others
PODS_EACH = 50  # which no node takes: tests/bench/operator_scale has ready ones, on fake nodes
AT_ONCE = 4  # kubectl creates of pods, each of which makes 16 a second here
PODS = LARGE * PODS_EACH
NOWHERE = {"sluice.dev/nowhere": "true"}  # labels that no node has
CREATION = 480.0  # seconds until an operator has made all children, and the pods exist
RARELY = ("intervalSeconds=30", "metrics.deployments=2000")  # as the bench has it; a series for each
REQUESTS_EACH = 15  # for one of them in the first pass of a new operator, which applies each of its ten children once
SETTLED = 60.0  # seconds after the first pass: two intervals, because its own writes lead to further passes at once


@pytest.fixture
def crowded(cluster: Cluster, operator: Operator) -> Iterator[str]:
    """The namespace of the resources that an operator has reconciled, and of their pods.

    At the end the operator goes first, so that it restores no child.
    """
    namespace = f"{cluster.namespace}-many"
    operator.uninstall()
    operator.install(*RARELY)
    account = operator.pods()[0]["spec"]["serviceAccountName"]
    schema = api_requests.flow_schema(operator.release, operator.namespace, account)
    spec = {"scaling": {"mode": "External"}, "engine": manifests.engine(template={"nodeSelector": NOWHERE})}
    members = [
        manifests.llm_deployment(f"many-{number}", **spec, replicas=PODS_EACH if number < LARGE else 0)
        for number in range(MANY)
    ]
    cluster.apply(schema)
    try:
        run("kubectl", "create", "namespace", namespace)
        create(namespace, members[:LARGE])  # first, because Kubernetes makes six ReplicaSets a second
        wait_for("ReplicaSets want the pods", lambda: len(large(cluster, namespace)) == LARGE, CREATION, every=2)
        create(namespace, members[LARGE:])
        say(f"{MANY} resources are created")
        make_pods(cluster, namespace)
        wait_for(f"{PODS} pods exist", lambda: is_made(cluster, namespace), CREATION, every=5)
        yield namespace
    finally:
        operator.stop()
        run("kubectl", "delete", "namespace", namespace, "--ignore-not-found", "--wait=false")
        run("kubectl", "delete", "flowschema", operator.release)


def test_row_an_operator_starting_at_1000_resources_and_5000_pods_is_through_in_time_with_bounded_memory_and_requests(
    cluster: Cluster, operator: Operator, crowded: str
) -> None:
    asked, began = requests(cluster, operator), time.monotonic()
    operator.restart()
    wait_for("a pass over each has ended", lambda: is_through(operator, crowded), timeout=FIRST_PASS_SECONDS)
    first, first_asked = time.monotonic() - began, requests(cluster, operator) - asked
    time.sleep(SETTLED)
    asked, began = requests(cluster, operator), time.monotonic()
    operator.wait_for_passes(MANY, timeout=60)
    rate = (requests(cluster, operator) - asked) / (time.monotonic() - began)
    memory = operator.memory()
    say(f"the first pass over {MANY}: {first:.0f} s, {first_asked:.0f} requests; then {rate:.1f} requests/s; {memory}")
    assert first < FIRST_PASS_SECONDS
    assert first_asked < REQUESTS_EACH * MANY
    assert rate < REQUESTS_PER_SECOND
    assert memory.peak < MEGABYTES * 1e6


def large(cluster: Cluster, namespace: str) -> list[Object]:
    """The ReplicaSets that want pods, oldest first: that is the order in which their controller makes them."""
    found = cluster.get(f"/apis/apps/v1/namespaces/{namespace}/replicasets") or {}
    wanting = [each for each in found["items"] if each["spec"]["replicas"] == PODS_EACH]
    return sorted(wanting, key=lambda each: str(each["metadata"]["creationTimestamp"]))


def make_pods(cluster: Cluster, namespace: str) -> None:
    """Make the pods of the newer half of the ReplicaSets as their controller does, which makes 20 a second of all of them."""
    newer = large(cluster, namespace)[LARGE // 2 :]
    pods = [pod_of(each) for each in newer for _ in range(PODS_EACH)]
    with ThreadPoolExecutor(AT_ONCE) as several:
        for made in [several.submit(create, namespace, pods[part::AT_ONCE]) for part in range(AT_ONCE)]:
            made.result()


def create(namespace: str, things: list[Object]) -> None:
    """Run one kubectl create for all. Raises CommandFailed."""
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": things})
    run("kubectl", "-n", namespace, "create", "-f", "-", stdin=listed, timeout=300)


def pod_of(replica_set: Object) -> Object:
    """A pod of a ReplicaSet's template that belongs to it."""
    template, name, uid = replica_set["spec"]["template"], name_of(replica_set), replica_set["metadata"]["uid"]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": uid, "controller": True}
    own = {"generateName": f"{name}-", "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"] | own, "spec": template["spec"]}


def is_made(cluster: Cluster, namespace: str) -> bool:
    """True if each of MANY has a status, which is written after its children, and all pods exist, and no further one."""
    pods = (cluster.get(f"/api/v1/namespaces/{namespace}/pods?limit=1") or {})["metadata"]
    if pods.get("remainingItemCount", 0) + 1 != PODS:
        return False
    found = cluster.get(f"{CUSTOM}/namespaces/{namespace}/{contract.PLURAL}") or {}
    return sum("observedGeneration" in each.get("status", {}) for each in found["items"]) == MANY


def is_through(operator: Operator, namespace: str) -> bool:
    """True if the leader has begun a pass over each of MANY, and has ended as many without an error."""
    found = operator.metrics()
    begun = sum(name.startswith(contract.OPERATOR_RESOURCE_FAILURES) and f'"{namespace}"' in name for name in found)
    ended = found.get(f'{contract.OPERATOR_RECONCILE}{{result="ok"}}', 0.0)
    return min(begun, ended) >= MANY


def requests(cluster: Cluster, operator: Operator) -> float:
    """Requests of the operators that the API server has admitted. Raises TimedOut if it does not tell."""
    metrics = wait_for("the API server's metrics", lambda: cluster.text("/metrics"), timeout=60)
    return api_requests.dispatched(metrics, operator.release)

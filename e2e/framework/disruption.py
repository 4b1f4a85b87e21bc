"""Takes pods away as a cluster does: by the Eviction API, and by a taint of their node."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.framework.cluster import Cluster, CommandFailed, Object, name_of, run, wait_for

_RECLAIMED = "e2e.sluice.dev/reclaimed"  # key of the taint


def evict(cluster: Cluster, pod: Object) -> None:
    """Create the Eviction. `run` repeats one that the PodDisruptionBudget refuses, for a minute."""
    where = f"/api/v1/namespaces/{cluster.namespace}/pods/{name_of(pod)}/eviction"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name_of(pod)}}
    cluster.kubectl("create", "--raw", where, "-f", "-", stdin=json.dumps(eviction))


def may_taint() -> bool:
    """True if this user may change nodes, and pods of all namespaces."""
    try:
        run("kubectl", "auth", "can-i", "patch", "nodes")
        run("kubectl", "auth", "can-i", "patch", "pods", "--all-namespaces")
    except CommandFailed:  # a "no" is exit code 1
        return False
    return True


def free_nodes(cluster: Cluster, but: str) -> list[str]:
    """Nodes other than `but` on which a new pod may be placed."""
    nodes = (cluster.get("/api/v1/nodes") or {})["items"]
    free = [name_of(node) for node in nodes if not node["spec"].get("taints") and not node["spec"].get("unschedulable")]
    return [name for name in free if name != but]


@contextmanager
def tainted(reclaimed: Object) -> Iterator[None]:
    """The node of a pod has a NoExecute taint that all its other pods tolerate, also those of other users."""
    node = reclaimed["spec"]["nodeName"]
    found = json.loads(run("kubectl", "get", "pods", "-A", "--field-selector", f"spec.nodeName={node}", "-o", "json"))
    toleration = {"key": _RECLAIMED, "operator": "Exists"}
    for pod in found["items"]:
        if pod["metadata"]["uid"] != reclaimed["metadata"]["uid"]:
            patch = {"spec": {"tolerations": [*pod["spec"].get("tolerations", []), toleration]}}
            where = ("-n", pod["metadata"]["namespace"], name_of(pod))
            run("kubectl", "patch", "pod", "--type=merge", "-p", json.dumps(patch), *where)
    run("kubectl", "taint", "node", node, f"{_RECLAIMED}=yes:NoExecute")
    try:
        yield
    finally:
        run("kubectl", "taint", "node", node, f"{_RECLAIMED}-")


def wait_until_ended(cluster: Cluster, pod: Object, name: str) -> None:
    """Until the pod of that LLMDeployment has drained and is gone."""
    uid = pod["metadata"]["uid"]
    wait_for("the pod has ended", lambda: uid not in {each["metadata"]["uid"] for each in cluster.pods(name)}, 180)

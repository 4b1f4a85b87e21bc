"""Nodes are lost under a fleet at its maximum, by a real operator and controllers; the test is scheduler and kubelets."""

import urllib.error
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sluice import contract
from sluice_operator.cluster.client import Object
from sluice_operator.cluster.kinds import path
from sluice_operator.render import names
from tests.kube.api_server import ApiServer, NoApiServer, controllers
from tests.kube.operators.process import deployment, operator, wait_for
from tests.kube.specs import BASE
from tests.kube.world import document

pytestmark = pytest.mark.timeout(400)  # pods of a node that was deleted go after 40 to 60 s
NAMESPACE = "lost-node"
NODES = ("node-a", "node-b", "node-c")
MOST = 2  # replicas
TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
LEAVING = [{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1} for key in TAINTS]
SPEC = BASE | {"scaling": {"minReplicas": MOST, "maxReplicas": MOST}, "engine": {"template": {"tolerations": LEAVING}}}
CONTROLLERS = ("deployment", "replicaset", "node-lifecycle", "taint-eviction", "pod-garbage-collector")
GRACE = ("--node-monitor-period=1s", "--node-monitor-grace-period=10s", "--node-startup-grace-period=10s")
LATER = 10  # looks at the fleet after a node has returned
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


def now() -> str:
    """As Kubernetes writes times."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass
class Nodes:
    """Three nodes without machines. Kubelets of `lost` do nothing; `most` is the highest count of pods that were to serve."""

    server: ApiServer
    lost: set[str] = field(default_factory=set)
    most: int = 0

    def create(self) -> None:
        """The kubelets register."""
        for name in NODES:
            self.server.request("POST", "/api/v1/nodes", {"metadata": {"name": name}})

    def look(self) -> bool:
        """The scheduler places pods, and kubelets renew their Leases and run or end their pods. Returns True."""
        free = [node for node in NODES if node not in self.lost and self._beat(node)]
        pods = self.pods()
        self.most = max(self.most, sum("deletionTimestamp" not in pod["metadata"] for pod in pods))
        for pod in pods:
            where, node = path("Pod", NAMESPACE, pod["metadata"]["name"]), pod["spec"].get("nodeName")
            if node is None and free:
                target = {"apiVersion": "v1", "kind": "Node", "name": min(free, key=lambda node: on(pods, node))}
                self._act("POST", f"{where}/binding", {"metadata": {"name": pod["metadata"]["name"]}, "target": target})
            elif node is not None and node not in self.lost and "deletionTimestamp" in pod["metadata"]:
                self._act("DELETE", f"{where}?gracePeriodSeconds=0")
            elif node is not None and node not in self.lost and not is_ready(pod):
                self._act("PATCH", f"{where}/status", {"status": running(pod)})
        return True

    def pods(self) -> list[Object]:
        """All pods, oldest first."""
        found: list[Object] = self.server.request("GET", path("Pod", NAMESPACE))["items"]
        return sorted(found, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    def _act(self, method: str, where: str, body: Object | None = None) -> None:
        """A request about a pod, which a controller may have deleted meanwhile."""
        try:
            self.server.request(method, where, body, MERGE if method == "PATCH" else "application/json")
        except urllib.error.HTTPError as error:
            error.close()
            if error.code not in (404, 409):
                raise

    def _beat(self, node: str) -> bool:
        """The node's heartbeat; True if a pod may be placed there."""
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": node}}
        lease |= {"spec": {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": now()}}
        where = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"
        self.server.request("PATCH", f"{where}?fieldManager=kubelet&force=true", lease, APPLY)
        live = self.server.request("GET", f"/api/v1/nodes/{node}")
        if not is_ready(live):
            times = {"lastHeartbeatTime": now(), "lastTransitionTime": now()}
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"} | times
            self.server.request("PATCH", f"/api/v1/nodes/{node}/status", {"status": {"conditions": [ready]}}, MERGE)
        return is_ready(live) and not live["spec"].get("taints")


def on(pods: list[Object], node: str) -> int:
    """How many of the pods are on a node."""
    return sum(pod["spec"].get("nodeName") == node for pod in pods)


def is_ready(thing: Object) -> bool:
    """The condition Ready of a node or a pod."""
    conditions = (thing.get("status") or {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


def running(pod: Object) -> Object:
    """The status of a pod whose container is ready, at an address where nothing answers."""
    image = pod["spec"]["containers"][0]["image"]
    state = {
        "state": {"running": {"startedAt": now()}},
        "ready": True,
        "restartCount": 0,
        "image": image,
        "imageID": "",
    }
    ready = [{"type": kind, "status": "True", "lastTransitionTime": now()} for kind in ("Ready", "ContainersReady")]
    placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now()}
    addresses = {"podIP": "127.98.0.1", "podIPs": [{"ip": "127.98.0.1"}]}
    started = {"phase": "Running", "startTime": now(), "containerStatuses": [{"name": names.CONTAINER, **state}]}
    return started | addresses | {"conditions": [*ready, placed]}


@pytest.fixture
def nodes(crd: ApiServer, tmp_path: Path) -> Iterator[Nodes]:
    """Nodes, with the controllers that place and evict pods."""
    options = [f"{name}-controller" for name in CONTROLLERS]
    try:
        with controllers(crd, tmp_path, *options, options=GRACE):
            found = Nodes(crd)
            found.create()
            yield found
            for name in NODES:
                if crd.get(f"/api/v1/nodes/{name}") is not None:
                    crd.request("DELETE", f"/api/v1/nodes/{name}")
    except NoApiServer as error:
        pytest.skip(str(error))


def ready_replicas(server: ApiServer) -> int:
    """As the status of the resource has it."""
    found = server.get(path(contract.KIND, NAMESPACE, "chat")) or {}
    return int((found.get("status") or {}).get("readyReplicas") or 0)


def test_row_a_silent_and_a_deleted_node_are_replaced_and_a_return_leads_to_no_more_than_the_maximum(
    crd: ApiServer, nodes: Nodes, tmp_path: Path
) -> None:
    def serve(without: str = "") -> bool:
        serving = {pod["metadata"]["name"] for pod in nodes.pods() if is_ready(pod)}
        return nodes.look() and ready_replicas(crd) == len(serving - {without}) == MOST

    crd.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    with operator(crd, NAMESPACE, log=tmp_path / "log", environment={"SLUICE_INTERVAL_SECONDS": "1"}):
        crd.request("POST", path(contract.KIND, NAMESPACE), document(SPEC))
        wait_for("all replicas serve", serve)
        silent, other = nodes.pods()
        nodes.lost.add(silent["spec"]["nodeName"])
        wait_for("the pod is replaced", lambda: serve(without=silent["metadata"]["name"]))
        (left,) = (pod for pod in nodes.pods() if pod["metadata"]["uid"] == silent["metadata"]["uid"])
        assert "deletionTimestamp" in left["metadata"]  # until the node returns
        nodes.lost.clear()
        wait_for("the node's pod ends", lambda: nodes.look() and len(nodes.pods()) == MOST)
        for _ in range(LATER):
            wait_for("all replicas serve", serve)
        gone = other["spec"]["nodeName"]
        nodes.lost.add(gone)
        crd.request("DELETE", f"/api/v1/nodes/{gone}")
        wait_for("the pod is replaced", lambda: serve() and on(nodes.pods(), gone) == 0)
        assert deployment(crd, NAMESPACE)["spec"]["replicas"] == nodes.most == MOST

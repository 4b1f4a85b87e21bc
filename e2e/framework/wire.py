"""A pod between the operators and the API server (inpod/wire.py), which can make all their watches silent, and end them."""

from collections.abc import Iterator
from contextlib import contextmanager

from e2e.framework import manifests
from e2e.framework.cluster import Cluster, Object, is_ready, say, wait_for
from e2e.framework.operator_pod import Operator
from sluice import contract, logs

NAME = "wire"
PORT, TARGET = 443, 6443
HOST = "kubernetes.default.svc"  # a name in the API server's certificate, which Kopf uses whatever the environment says
WATCHES = 8  # kinds that the leading operator watches


@contextmanager
def before(cluster: Cluster, operator: Operator, image: str) -> Iterator[None]:
    """The operators reach the API server through the pod and log all that they do, until the block ends."""
    pod = manifests.program_pod(NAME, image, "wire.py")
    pod["metadata"]["labels"] = {"app": NAME}
    service: Object = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME},
        "spec": {"selector": {"app": NAME}, "ports": [{"port": PORT, "targetPort": TARGET}]},
    }
    cluster.apply(pod, service)
    try:
        wait_for("the pod before the API server runs", lambda: any(map(is_ready, _pods(cluster))), timeout=60)
        address = (cluster.get(f"/api/v1/namespaces/{cluster.namespace}/services/{NAME}") or {})["spec"]["clusterIP"]
        with operator.with_template(_template(address)):
            yield
    finally:
        cluster.kubectl("delete", f"pod/{NAME}", f"service/{NAME}")


def stall(cluster: Cluster) -> None:
    """From now on nothing comes on a watch that is older than some seconds. Raises TimedOut if there are too few."""
    wait_for("watches go through the pod", lambda: _asked(cluster, "quiet") >= WATCHES, timeout=120)
    say(f"{_asked(cluster, 'stall')} connections are silent")


def cut(cluster: Cluster) -> None:
    """The silent watches end, without what has come on them, and others are not silent."""
    say(f"{_asked(cluster, 'cut')} connections were silent and are closed")


def _template(address: str) -> Object:
    environment = {"KUBERNETES_SERVICE_HOST": HOST, "KUBERNETES_SERVICE_PORT": str(PORT)}
    environment[logs.ENV_LEVEL] = "debug"
    container = {"name": "operator", "env": [{"name": name, "value": value} for name, value in environment.items()]}
    return {"spec": {"hostAliases": [{"ip": address, "hostnames": [HOST]}], "containers": [container]}}


def _pods(cluster: Cluster) -> list[Object]:
    found = cluster.get(f"/api/v1/namespaces/{cluster.namespace}/pods?labelSelector=app%3D{NAME}") or {}
    return list(found.get("items", []))


def _asked(cluster: Cluster, path: str) -> int:
    where = f"/api/v1/namespaces/{cluster.namespace}/pods/{NAME}:{contract.ADMIN_PORT}/proxy/{path}"
    return int(cluster.text(where) or 0)

"""A pod that measures since when the API server is reachable again from inside the cluster (inpod/reach.py)."""

import json

from e2e.framework import manifests
from e2e.framework.cluster import Cluster, Object, say, wait_for
from sluice import contract

_NAME = "reach"


def start(cluster: Cluster, image: str) -> None:
    """Start it, before the outage. Raises TimedOut."""
    cluster.apply(manifests.program_pod(_NAME, image, "reach.py"))
    wait_for("the pod that tries the API server runs", lambda: _answer(cluster) is not None, timeout=60)


def seconds_back(cluster: Cluster) -> float:
    """Seconds since pods reach the API server again; ends the pod. Raises TimedOut if it was never away or is away."""
    wait_for("pods reach the API server again", lambda: (_answer(cluster) or {}).get("back_seconds"), timeout=60)
    found = float((_answer(cluster) or {})["back_seconds"])
    say(f"pods of the cluster reach the API server since {found:.0f} s")
    cluster.kubectl("delete", "pod", _NAME, "--wait=false")
    return found


def _answer(cluster: Cluster) -> Object | None:
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/{_NAME}:{contract.ADMIN_PORT}/proxy/reached"
    text = cluster.text(path)
    return json.loads(text) if text else None

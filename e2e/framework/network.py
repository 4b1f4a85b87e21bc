"""Which pod reaches which port: by connections where the cluster enforces NetworkPolicies, else by the stored objects."""

from e2e.framework.cluster import Cluster, Object, TimedOut, name_of, run, say, wait_for
from e2e.framework.manifests import PYTHON
from tests.operator.security.policy_evaluator import Pod, is_allowed

_CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3).close()
except OSError:
    print("closed")
else:
    print("open")
"""
_EFFECT = 10.0  # seconds within which a plugin that enforces policies closes a port
_POLICIES = "/apis/networking.k8s.io/v1/networkpolicies"


def connects(source: Object, destination: Object, port: int) -> bool:
    """True if the one pod gets a connection to a port of the other one."""
    where = ("kubectl", "-n", source["metadata"]["namespace"], "exec", name_of(source), "--")
    return run(*where, PYTHON, "-c", _CONNECT, destination["status"]["podIP"], str(port)).strip() == "open"


def is_enforced(cluster: Cluster, source: Object, destination: Object, port: int) -> bool:
    """True if a policy closes a port of `destination`, which has the label probe=yes. Raises TimedOut if it is not open."""
    wait_for("the probed port is open", lambda: connects(source, destination, port), timeout=30)
    spec = {"podSelector": {"matchLabels": {"probe": "yes"}}, "policyTypes": ["Ingress"]}
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "probe"}}
    cluster.apply(policy | {"spec": spec})
    try:
        wait_for("a policy closes a port", lambda: not connects(source, destination, port), timeout=_EFFECT)
    except TimedOut:
        return False
    finally:
        cluster.kubectl("delete", "networkpolicy", "probe")
    return True


def admits(cluster: Cluster, source: Object, destination: Object, port: int) -> bool:
    """True if the cluster's stored policies allow it, by the reference evaluator of `tests/operator/security`."""
    policies = (cluster.get(_POLICIES) or {})["items"]
    return is_allowed(policies, _end(cluster, source), _end(cluster, destination), port)


def _end(cluster: Cluster, pod: Object) -> Pod:
    metadata = pod["metadata"]
    namespace = (cluster.get(f"/api/v1/namespaces/{metadata['namespace']}") or {})["metadata"]
    return Pod(metadata["namespace"], metadata.get("labels", {}), pod["status"]["podIP"], namespace.get("labels", {}))


def told(enforced: bool) -> None:
    """Print which of the two ways is taken."""
    how = "connections are tried" if enforced else "the stored objects are evaluated, and open ways tried"
    say(f"this cluster {'enforces' if enforced else 'does not enforce'} NetworkPolicies: {how}")

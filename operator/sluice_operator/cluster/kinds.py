"""The kinds that the operator uses: their places in the API. A table, so API discovery and its cache are not needed."""

from typing import Final

from sluice import contract
from sluice_operator.cluster.client import ClusterError, Object

GROUPS: Final = {
    "Namespace": ("", "v1", "namespaces"),
    "Pod": ("", "v1", "pods"),
    "Service": ("", "v1", "services"),
    "ServiceAccount": ("", "v1", "serviceaccounts"),
    "Secret": ("", "v1", "secrets"),
    "ConfigMap": ("", "v1", "configmaps"),
    "Event": ("", "v1", "events"),
    "Deployment": ("apps", "v1", "deployments"),
    "ReplicaSet": ("apps", "v1", "replicasets"),
    "PodDisruptionBudget": ("policy", "v1", "poddisruptionbudgets"),
    "NetworkPolicy": ("networking.k8s.io", "v1", "networkpolicies"),
    "Lease": ("coordination.k8s.io", "v1", "leases"),
    "PodMonitor": ("monitoring.coreos.com", "v1", "podmonitors"),  # of the Prometheus Operator
    contract.KIND: (contract.GROUP, contract.VERSION, contract.PLURAL),
}
ENGINES: Final = f"{contract.LABEL_NAME}={contract.ENGINE_APP}"  # selects the children of all LLMDeployments
_OF_USERS: Final = (contract.KIND, "Namespace")  # kinds of which the operator reads every object


def api_version(kind: str) -> str:
    """Return `apiVersion` of a kind of the table."""
    group, version, _ = GROUPS[kind]
    return f"{group}/{version}" if group else version


def selector(kind: str) -> str:
    """Return the label selector of what the operator reads of a kind; empty for all objects."""
    return "" if kind in _OF_USERS else ENGINES


def is_selected(kind: str, thing: Object) -> bool:
    """True if `selector(kind)` selects the object."""
    labels = thing["metadata"].get("labels") or {}
    return kind in _OF_USERS or labels.get(contract.LABEL_NAME) == contract.ENGINE_APP


def path(kind: str, namespace: str = "", name: str = "") -> str:
    """Return the API path of one object, of a kind in one namespace, or of a kind in all namespaces. Raises ClusterError
    for a kind that this operator does not use."""
    if kind not in GROUPS:
        raise ClusterError(f"kind {kind} is not supported by this client")
    group, version, plural = GROUPS[kind]
    prefix = f"/apis/{group}/{version}" if group else f"/api/{version}"
    placed = f"{prefix}/namespaces/{namespace}" if namespace else prefix
    return f"{placed}/{plural}/{name}" if name else f"{placed}/{plural}"

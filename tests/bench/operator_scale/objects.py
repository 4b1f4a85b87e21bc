"""The objects of the bench: nodes, resources, and an account for the operator with the chart's rights."""

from typing import Any, Final

from sluice import contract
from tests.bench.operator_scale.api_requests import flow_schema
from tests.operator.security.chart_objects import stored

Object = dict[str, Any]

SYSTEM: Final = "bench-operator-system"  # namespace of the Lease and the key
ACCOUNT: Final = "bench-operator"
PODS_PER_RESOURCE: Final = 5
PODS_PER_NODE: Final = 250
RESOURCES_PER_NAMESPACE: Final = 100
_TAINT: Final = "sluice.dev/bench"
_RBAC: Final = "rbac.authorization.k8s.io"


def namespaces(scale: int) -> list[str]:
    """Names of the namespaces of the resources."""
    return [f"bench-operator-{number}" for number in range(-(-scale // RESOURCES_PER_NAMESPACE))]


def resource_name(number: int) -> tuple[str, str]:
    """Namespace and name of an LLMDeployment."""
    return f"bench-operator-{number // RESOURCES_PER_NAMESPACE}", f"model-{number}"


def resource(number: int) -> Object:
    """An LLMDeployment whose pods run on the fake nodes only."""
    namespace, name = resource_name(number)
    template = {
        "nodeSelector": {_TAINT: "fake"},
        "tolerations": [{"key": _TAINT, "operator": "Exists", "effect": "NoSchedule"}],
    }
    return {
        "apiVersion": contract.API_VERSION,
        "kind": contract.KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "model": {"uri": "hf://sluice/bench"},
            "engine": {"accelerator": {"count": 0}, "template": template},
            "scaling": {"minReplicas": PODS_PER_RESOURCE, "maxReplicas": PODS_PER_RESOURCE},
        },
    }


def nodes(scale: int) -> list[Object]:
    """Nodes that kwok runs."""
    room = {"cpu": "100k", "memory": "100Ti", "pods": str(PODS_PER_NODE)}
    count = -(-scale * PODS_PER_RESOURCE // PODS_PER_NODE) + 1
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"bench-operator-{number}",
                "annotations": {"kwok.x-k8s.io/node": "fake"},
                "labels": {_TAINT: "fake", "kubernetes.io/os": "linux", "type": "kwok"},
            },
            "spec": {"taints": [{"key": _TAINT, "value": "fake", "effect": "NoSchedule"}]},
            "status": {"capacity": room, "allocatable": room},
        }
        for number in range(count)
    ]


def lease(node: str) -> Object:
    """The Lease by which a node is alive."""
    return {"metadata": {"name": node}, "spec": {"holderIdentity": node, "leaseDurationSeconds": 40}}


def account() -> list[tuple[str, Object]]:
    """(collection, object): the operator's account, and a FlowSchema by which the API server counts its requests."""
    metadata = {"name": ACCOUNT}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": SYSTEM}
    (role,) = (each for each in stored("default", "ClusterRole") if each["metadata"]["name"] == "blue-sluice")
    own = [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "get", "update"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "get"]},
    ]
    rbac, flow = f"/apis/{_RBAC}/v1", "/apis/flowcontrol.apiserver.k8s.io/v1"
    return [
        (f"/api/v1/namespaces/{SYSTEM}/serviceaccounts", {"metadata": metadata}),
        (f"{rbac}/clusterroles", {"metadata": metadata, "rules": role["rules"]}),
        (f"{rbac}/clusterrolebindings", _binding("ClusterRole", subject)),
        (f"{rbac}/namespaces/{SYSTEM}/roles", {"metadata": metadata, "rules": own}),
        (f"{rbac}/namespaces/{SYSTEM}/rolebindings", _binding("Role", subject)),
        (f"{flow}/flowschemas", flow_schema(ACCOUNT, SYSTEM, ACCOUNT)),
    ]


def _binding(kind: str, subject: Object) -> Object:
    reference = {"apiGroup": _RBAC, "kind": kind, "name": ACCOUNT}
    return {"metadata": {"name": ACCOUNT}, "roleRef": reference, "subjects": [subject]}

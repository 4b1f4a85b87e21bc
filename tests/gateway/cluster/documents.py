"""Objects of an API server, as the watches deliver them."""

from itertools import count
from typing import Any

from sluice import contract

Object = dict[str, Any]
_VERSIONS = count(1)
DAY = "2026-11-0{}T08:00:00Z"


def deployment(name: str, *, namespace: str = "ns", day: int = 1, **spec: Any) -> Object:
    """An LLMDeployment, created on that day of the month. Each has another resourceVersion."""
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": DAY.format(day), "uid": f"uid-of-{name}"}
    metadata["resourceVersion"] = str(next(_VERSIONS))
    return {"metadata": metadata, "spec": {"model": {"uri": "pvc://models/tiny"}} | spec}


def slice_of(resource: str, *endpoints: Object, namespace: str = "ns", **changes: Any) -> Object:
    """A slice of the headless Service of an LLMDeployment."""
    service = f"{resource}{contract.HEADLESS_SUFFIX}"
    labels = {
        contract.LABEL_NAME: contract.ENGINE_APP,
        contract.LABEL_INSTANCE: resource,
        "kubernetes.io/service-name": service,
        "service.kubernetes.io/headless": "",
    }
    return {
        "metadata": {"name": f"{service}-x7k2p", "namespace": namespace, "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": contract.DATA_PORT_NAME, "port": contract.DATA_PORT}],
        "endpoints": list(endpoints),
    } | changes


def endpoint(pod: str, address: str = "10.0.0.1", conditions: Object | None = None) -> Object:
    """An endpoint, ready unless its conditions say otherwise."""
    return {"addresses": [address], "conditions": conditions or {}, "targetRef": {"kind": "Pod", "name": pod}}


def by_name(*documents: Object) -> dict[tuple[str, str], Object]:
    """The objects as a reflector keeps them."""
    return {(each["metadata"]["namespace"], each["metadata"]["name"]): each for each in documents}

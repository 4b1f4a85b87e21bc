"""The two Services: one address for clients, and one name that lists every ready pod for a gateway."""

from sluice import contract
from sluice_operator.api import LLMDeployment
from sluice_operator.render import names
from sluice_operator.world import Object


def build_service(resource: LLMDeployment) -> Object:
    """The ClusterIP Service. It carries the data port only: the admin port is never exposed."""
    return _service(resource, names.service(resource.name), {"type": "ClusterIP"})


def build_headless_service(resource: LLMDeployment) -> Object:
    """The headless Service: its DNS name answers with the addresses of the ready pods."""
    return _service(resource, names.headless_service(resource.name), {"type": "ClusterIP", "clusterIP": "None"})


def _service(resource: LLMDeployment, name: str, how: Object) -> Object:
    port = {
        "name": contract.DATA_PORT_NAME,
        "port": contract.DATA_PORT,
        "targetPort": contract.DATA_PORT_NAME,
        "protocol": "TCP",
        "appProtocol": "http",
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": names.metadata(resource, name),
        "spec": {**how, "selector": names.selector(resource.name), "ports": [port]},
    }

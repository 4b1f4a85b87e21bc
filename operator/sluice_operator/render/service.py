"""Builds the two Services: a virtual IP for clients, and a headless Service that lists the ready pods for a gateway."""

from sluice import contract
from sluice_operator.api import LLMDeployment
from sluice_operator.cluster.client import Object
from sluice_operator.render import names


def build_service(resource: LLMDeployment) -> Object:
    """Return the ClusterIP Service. It has only the data port: the admin port is never exposed."""
    how = {"type": "ClusterIP", "selector": names.selector(resource.name)}
    return _service(resource, names.service(resource.name), how)


def build_headless_service(resource: LLMDeployment) -> Object:
    """Return the headless Service, whose DNS name resolves to the addresses of the ready pods."""
    return headless_service(resource, names.headless_service(resource.name), names.selector(resource.name))


def headless_service(resource: LLMDeployment, name: str, selector: dict[str, str]) -> Object:
    """Return a headless Service of some of the engine pods."""
    return _service(resource, name, {"type": "ClusterIP", "clusterIP": "None", "selector": selector})


def _service(resource: LLMDeployment, name: str, how: Object) -> Object:
    port = {
        "name": contract.DATA_PORT_NAME,
        "port": contract.DATA_PORT,
        "targetPort": contract.DATA_PORT_NAME,
        "protocol": "TCP",
        "appProtocol": "http" if resource.spec.auth.tls_secret_ref is None else "https",
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": names.metadata(resource, name),
        "spec": {**how, "ports": [port]},
    }

"""Builds the ServiceAccount of the engine pods: an identity without permissions and without a mounted token."""

from sluice_operator.api import LLMDeployment
from sluice_operator.cluster.client import Object
from sluice_operator.render import names


def build_service_account(resource: LLMDeployment) -> Object:
    """Return the ServiceAccount. It has no mounted token because engines make no requests to the API server."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": names.metadata(resource, names.service_account(resource.name)),
        "automountServiceAccountToken": False,
    }

"""The ServiceAccount of the engine pods: an identity with no rights and no mounted token."""

from sluice_operator.api import LLMDeployment
from sluice_operator.render import names
from sluice_operator.world import Object


def build_service_account(resource: LLMDeployment) -> Object:
    """The ServiceAccount; engines never talk to the API server."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": names.metadata(resource, names.service_account(resource.name)),
        "automountServiceAccountToken": False,
    }

"""Builds the Secret with the admin token that the operator and the engines share."""

import base64

from sluice import contract
from sluice_operator.api import LLMDeployment
from sluice_operator.cluster.client import Object
from sluice_operator.render import names


def build_admin_secret(resource: LLMDeployment, token: str) -> Object:
    """Return the immutable Secret. A different token has a different Secret, and a rollout brings it to the pods.

    An administrator rotates tokens by deleting the operator's key and restarting the operator.
    """
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": names.metadata(resource, names.admin_secret(resource.name, token)),
        "type": "Opaque",
        "immutable": True,
        "data": {contract.ADMIN_TOKEN_KEY: base64.b64encode(token.encode()).decode()},
    }

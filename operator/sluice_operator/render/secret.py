"""The Secret with the admin token that operator and engines share."""

import base64

from sluice import contract
from sluice_operator.api import LLMDeployment
from sluice_operator.render import names
from sluice_operator.world import Object


def build_admin_secret(resource: LLMDeployment, token: str) -> Object:
    """The Secret, to be created once and never applied again: a token made anew would lock running engines out. It is
    immutable, so nobody changes it under them; to rotate it, delete it and restart the pods."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": names.metadata(resource, names.admin_secret(resource.name)),
        "type": "Opaque",
        "immutable": True,
        "data": {contract.ADMIN_TOKEN_KEY: base64.b64encode(token.encode()).decode()},
    }

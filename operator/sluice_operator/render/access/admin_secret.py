"""Builds the Secrets with the tokens that the operator and the engines share, and the ConfigMaps that show their deletion."""

import base64
from collections.abc import Mapping
from typing import Final

from sluice import contract
from sluice_operator.api import LLMDeployment
from sluice_operator.cluster.client import Object
from sluice_operator.render import names

_ABOUT: Final = (
    "Deleted with the Secret of this name: so the operator, which reads no Secret here, sees that it is gone."
)


def build_admin_secret(resource: LLMDeployment, token: str) -> Object:
    """Return the immutable Secret. A different token has a different Secret, and a rollout brings it to the pods.

    An administrator rotates tokens by deleting the operator's key and restarting the operator.
    """
    return _secret(resource, names.admin_secret(resource.name, token), {contract.ADMIN_TOKEN_KEY: token})


def build_read_secret(resource: LLMDeployment, token: str, read_token: str) -> Object:
    """Return the immutable Secret of the token of reads, which Prometheus sends. It is not the admin token's, so that a
    reader of one is no writer.

    `token`: the admin token, after which it is named.
    """
    name = names.read_secret(names.admin_secret(resource.name, token))
    return _secret(resource, name, {contract.READ_TOKEN_KEY: read_token})


def build_sentinel(resource: LLMDeployment, secret: Object) -> Object:
    """Return the immutable ConfigMap that the garbage collector deletes after the live `secret`, its only owner."""
    name, uid = secret["metadata"]["name"], secret["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": uid}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**names.metadata(resource, name), "ownerReferences": [owner]},
        "immutable": True,
        "data": {"about": _ABOUT},
    }


def _secret(resource: LLMDeployment, name: str, entries: Mapping[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": names.metadata(resource, name),
        "type": "Opaque",
        "immutable": True,
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in entries.items()},
    }

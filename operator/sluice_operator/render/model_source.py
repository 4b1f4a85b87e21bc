"""Mounts what an engine needs to fetch a model: the Secrets of its source and the cache.

Token and credentials are files and not variables, because the kubelet updates files in running pods: a corrected Secret ends
the fault without a restart. As for other Secrets, a missing one is optional for the kubelet and reported by the engine.
"""

from typing import Final

from sluice import contract
from sluice.models.uri import HubModel, S3Model, parse_uri
from sluice_operator.api.spec import ModelSpec
from sluice_operator.cluster.client import Object

_TOKEN: Final = "source-token"
_CREDENTIALS: Final = "source-credentials"
_CACHE: Final = "model-cache"


def is_remote(model: ModelSpec) -> bool:
    """True if the engine downloads the model."""
    return isinstance(parse_uri(model.uri), HubModel | S3Model)


def source_flags(model: ModelSpec) -> dict[str, str | None]:
    """Return the engine's flags, without dashes. A pod retries a failed download: a restart would not help."""
    return {
        "fetch-errors": "retry" if is_remote(model) else None,
        "cache": contract.CACHE_MOUNT if model.cache is not None else None,
        "revision-file": f"{contract.TARGETS_MOUNT}/{contract.REVISION_FILE}" if is_remote(model) else None,
    }


def source_env(model: ModelSpec) -> list[Object]:
    """Return the container's variables."""
    variables: list[Object] = []
    if model.token_secret_ref is not None:
        path = f"{contract.SOURCE_TOKEN_MOUNT}/{contract.SOURCE_TOKEN_FILE}"
        variables.append({"name": contract.ENV_HUB_TOKEN_PATH, "value": path})
    if model.credentials_secret_ref is not None:
        variables.append({"name": contract.ENV_S3_CREDENTIALS, "value": contract.S3_CREDENTIALS_MOUNT})
    return variables


def source_volumes(model: ModelSpec) -> list[Object]:
    """Return the pod's volumes."""
    volumes: list[Object] = []
    if (token := model.token_secret_ref) is not None:
        items = [{"key": token.key, "path": contract.SOURCE_TOKEN_FILE}]
        secret = {"secretName": token.name, "items": items, "defaultMode": 0o440, "optional": True}
        volumes.append({"name": _TOKEN, "secret": secret})
    if (credentials := model.credentials_secret_ref) is not None:
        secret = {"secretName": credentials.name, "defaultMode": 0o440, "optional": True}
        volumes.append({"name": _CREDENTIALS, "secret": secret})
    if model.cache is not None:
        kind: Object = (
            {"hostPath": {"path": contract.NODE_CACHE, "type": "Directory"}}
            if model.cache.claim is None
            else {"persistentVolumeClaim": {"claimName": model.cache.claim}}
        )
        volumes.append({"name": _CACHE, **kind})
    return volumes


def source_mounts(model: ModelSpec) -> list[Object]:
    """Return the container's mounts."""
    mounts: list[Object] = []
    if model.token_secret_ref is not None:
        mounts.append({"name": _TOKEN, "mountPath": contract.SOURCE_TOKEN_MOUNT, "readOnly": True})
    if model.credentials_secret_ref is not None:
        mounts.append({"name": _CREDENTIALS, "mountPath": contract.S3_CREDENTIALS_MOUNT, "readOnly": True})
    if model.cache is not None:
        mounts.append({"name": _CACHE, "mountPath": contract.CACHE_MOUNT})
    return mounts

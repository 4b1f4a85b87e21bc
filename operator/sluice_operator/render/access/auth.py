"""Mounts the Secrets of `spec.auth` into the engine pod and names their files on the engine's command line.

Each Secret is mounted as a whole directory, because the kubelet never updates a file that is mounted by subPath. A
missing Secret is optional for the kubelet and an error for the engine, which reports it as a condition and does not
start: the kubelet alone would keep the pod in ContainerCreating and say why only in an Event.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sluice import contract
from sluice_operator.api.auth import Auth
from sluice_operator.cluster.client import Object


@dataclass(frozen=True, slots=True)
class MountedSecret:
    """One Secret: the volume's name, the Secret's name, its folder in the container, and flag → file name."""

    volume: str
    secret: str
    folder: str
    files: Mapping[str, str]


def mounted_secrets(auth: Auth) -> list[MountedSecret]:
    """Return the Secrets that the engine pods mount."""
    found = []
    if auth.api_keys_secret_ref is not None:
        files = {"api-keys-file": contract.API_KEYS_FILE}
        found.append(MountedSecret("api-keys", auth.api_keys_secret_ref.name, contract.API_KEYS_MOUNT, files))
    if auth.gateway_token_secret_ref is not None:
        files = {"gateway-token-file": contract.GATEWAY_TOKEN_FILE}
        secret = auth.gateway_token_secret_ref.name
        found.append(MountedSecret("gateway-token", secret, contract.GATEWAY_TOKEN_MOUNT, files))
    if auth.tls_secret_ref is not None:
        files = {"tls-cert-file": contract.TLS_CERTIFICATE_FILE, "tls-key-file": contract.TLS_KEY_FILE}
        found.append(MountedSecret("tls", auth.tls_secret_ref.name, contract.TLS_MOUNT, files))
    return found


def secret_flags(auth: Auth) -> dict[str, str]:
    """Return the engine's flags, without dashes, and their paths."""
    return {flag: f"{one.folder}/{file}" for one in mounted_secrets(auth) for flag, file in one.files.items()}


def secret_volumes(auth: Auth) -> list[Object]:
    """Return the pod's volumes."""
    return [
        {"name": one.volume, "secret": {"secretName": one.secret, "defaultMode": 0o440, "optional": True}}
        for one in mounted_secrets(auth)
    ]


def secret_mounts(auth: Auth) -> list[Object]:
    """Return the container's mounts."""
    return [{"name": one.volume, "mountPath": one.folder, "readOnly": True} for one in mounted_secrets(auth)]

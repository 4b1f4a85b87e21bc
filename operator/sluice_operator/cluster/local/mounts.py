"""The files that a kubelet mounts into a pod: the admin token of its Secret, and the targets of its ConfigMap."""

from sluice import contract
from sluice_operator.cluster.client import Object
from sluice_operator.cluster.local.launch import (
    LocalError,
    PodFiles,
    admin_secret_name,
    replace_file,
    secret_value,
    targets_name,
    write_private,
)
from sluice_operator.cluster.local.store import ObjectStore


def write_token(store: ObjectStore, namespace: str, template: Object, files: PodFiles) -> None:
    """Mount the admin token. Raises LocalError if the Secret does not exist."""
    name = admin_secret_name(template)
    if name is None:
        return
    secret = store.get("Secret", namespace, name)
    if secret is None:
        raise LocalError(f'secret "{name}" not found')
    write_private(files.token, secret_value(secret, contract.ADMIN_TOKEN_KEY))


def write_targets(store: ObjectStore, namespace: str, template: Object, files: PodFiles) -> None:
    """Mount the ConfigMap as files, replaced atomically. Raises LocalError if the ConfigMap does not exist."""
    name = targets_name(template)
    if name is None:
        return
    found = store.get("ConfigMap", namespace, name)
    if found is None:
        raise LocalError(f'configmap "{name}" not found')
    data = found.get("data") or {}
    for path, key in ((files.targets, contract.TARGETS_FILE), (files.revision, contract.REVISION_FILE)):
        content = str(data.get(key, "")).encode()
        if key in data and (not path.exists() or path.read_bytes() != content):
            replace_file(path, content)

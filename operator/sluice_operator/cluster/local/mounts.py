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
    write_private(files.token, secret_value(_found(store, "Secret", namespace, name), contract.ADMIN_TOKEN_KEY))


def write_targets(store: ObjectStore, namespace: str, template: Object, files: PodFiles) -> None:
    """Mount the ConfigMap as files, replaced atomically. Raises LocalError if the ConfigMap does not exist."""
    name = targets_name(template)
    if name is None:
        return
    data = _found(store, "ConfigMap", namespace, name).get("data") or {}
    for path, key in ((files.targets, contract.TARGETS_FILE), (files.revision, contract.REVISION_FILE)):
        content = str(data.get(key, "")).encode()
        if key in data and (not path.exists() or path.read_bytes() != content):
            replace_file(path, content)


def _found(store: ObjectStore, kind: str, namespace: str, name: str) -> Object:
    found = store.get(kind, namespace, name)
    if found is None:
        raise LocalError(f'{kind.lower()} "{name}" not found')
    return found

"""Reads the resource of `sluice up` from a file and checks that this machine can run it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from sluice_operator.api import LLMDeployment
from sluice_operator.api.yaml_file import BadFile, read_resource
from sluice_operator.cluster.client import Key, Object
from sluice_operator.cluster.local.launch import PVC_UNSUPPORTED

DEFAULT_NAMESPACE: Final = "default"


@dataclass(frozen=True, slots=True)
class LocalResource:
    """The resource to run: as the reconcile loop reads it, and as types."""

    key: Key
    manifest: Object
    resource: LLMDeployment


def read_local_resource(path: Path) -> LocalResource:
    """The one LLMDeployment of a file.

    Raises BadFile, also for features that need a cluster.
    """
    document, resource = read_resource(path)
    faults = tuple(_local_faults(resource))
    if faults:
        raise BadFile(faults)
    metadata = dict(document["metadata"])
    namespace = metadata.setdefault("namespace", DEFAULT_NAMESPACE)
    manifest = {**document, "metadata": metadata}
    manifest.pop("status", None)
    return LocalResource(Key(namespace, resource.name), manifest, resource)


def _local_faults(resource: LLMDeployment) -> Iterator[str]:
    """Features of the resource that need a cluster, one sentence each."""
    uri = resource.spec.model.uri
    if uri.startswith("pvc://"):
        yield PVC_UNSUPPORTED
    elif uri.startswith("file://"):
        folder = Path(unquote(urlsplit(uri).path))
        if not (folder / "config.json").is_file():
            yield (
                f"spec.model.uri: there is no model in {folder} (no config.json): "
                f"name a folder that has one, or make one by `sluice model tiny {folder}`"
            )

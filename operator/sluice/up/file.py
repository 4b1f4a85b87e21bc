"""Reads the resource of `sluice up` from a file and checks that this machine can run it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from sluice_operator.api import LLMDeployment
from sluice_operator.api.yaml_file import BadFile, file_uri, read_resource
from sluice_operator.cluster.client import Key, Object
from sluice_operator.cluster.local.launch import PVC_UNSUPPORTED

DEFAULT_NAMESPACE: Final = "default"


@dataclass(frozen=True, slots=True)
class LocalResource:
    """The resource to run: as the reconcile loop reads it, and as types."""

    key: Key
    manifest: Object
    resource: LLMDeployment


def read_local_resource(
    path: Path, api_keys: Path | None = None, local_uri: Callable[[str], str] = file_uri
) -> LocalResource:
    """The one LLMDeployment of a file, to be run with this key file; `local_uri` gives the URI of a model without a scheme.

    Raises BadFile, also for features that need a cluster, and what `local_uri` raises.
    """
    document, resource = read_resource(path, local_uri)
    faults = tuple(_local_faults(resource, api_keys))
    if faults:
        raise BadFile(faults)
    metadata = dict(document["metadata"])
    namespace = metadata.setdefault("namespace", DEFAULT_NAMESPACE)
    manifest = {**document, "metadata": metadata}
    manifest.pop("status", None)
    return LocalResource(Key(namespace, resource.name), manifest, resource)


def _local_faults(resource: LLMDeployment, api_keys: Path | None) -> Iterator[str]:
    """Features of the resource that need a cluster, one sentence each."""
    uri = resource.spec.model.uri
    if uri.startswith("pvc://"):
        yield PVC_UNSUPPORTED
    elif uri.startswith("file://"):
        model = Path(unquote(urlsplit(uri).path))
        if not (model / "config.json").is_file() and not _is_gguf(model):
            yield (
                f"spec.model.uri: there is no model at {model} (no config.json, no .gguf): name a folder that has one, "
                f"or smollm2, or make one by `sluice model tiny {model}`"
            )
    if api_keys is not None and not api_keys.is_file():
        yield f"--api-keys-file: there is no file {api_keys}"
    if resource.spec.auth.api_keys_secret_ref is not None and api_keys is None:
        yield (
            "spec.auth.apiKeysSecretRef: this machine has no Secrets: give the keys.yaml of the Secret by "
            "--api-keys-file, or remove the field"
        )


def _is_gguf(model: Path) -> bool:
    return model.suffix.lower() == ".gguf" if model.is_file() else any(model.glob("*.gguf"))

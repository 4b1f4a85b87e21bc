"""The YAML file a person wrote, or one sentence per fault in it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import yaml

from sluice import contract
from sluice_operator.api import InvalidResource, LLMDeployment, parse
from sluice_operator.local.launch import PVC_REFUSED
from sluice_operator.world import Key, Object

DEFAULT_NAMESPACE: Final = "default"
MAX_BYTES: Final = 1024 * 1024


class BadFile(Exception):
    """The file cannot be brought up. `faults` has one sentence per fault."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to bring up: the resource as the loop reads it, and as types."""

    key: Key
    manifest: Object
    resource: LLMDeployment


def read_wanted(path: Path) -> Wanted:
    """The one LLMDeployment of a file; documents of other kinds stand beside it and are left alone.

    Raises BadFile.
    """
    documents = [one for one in _documents(path) if one is not None]
    for one in documents:
        if not isinstance(one, dict):
            raise BadFile((f"{path}: each document must be a mapping with apiVersion, kind, metadata and spec",))
    ours = [one for one in documents if one.get("kind") == contract.KIND]
    if not ours and len(documents) == 1:
        ours = documents  # one document of a wrong or missing kind: let the parser say so
    if not ours:
        raise BadFile((f"{path}: there is no {contract.KIND} in it",))
    if len(ours) > 1:
        raise BadFile((f"{path}: it has {len(ours)} {contract.KIND}s, and sluice up runs one: give it a file of one",))
    return _checked(ours[0])


def _documents(path: Path) -> list[Any]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadFile((f"{path}: {error.strerror or error}",)) from error
    if len(content) > MAX_BYTES:
        raise BadFile((f"{path}: it is over {MAX_BYTES} bytes",))
    try:
        return list(yaml.safe_load_all(content.decode()))
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        words = " ".join(str(error).split()) or "it nests too deep"
        raise BadFile((f"{path}: it is not YAML: {words}",)) from error


def _checked(document: Object) -> Wanted:
    try:
        resource = parse(document)
    except InvalidResource as error:
        raise BadFile(error.faults) from error
    faults = tuple(_local_faults(resource))
    if faults:
        raise BadFile(faults)
    metadata = dict(document["metadata"])
    namespace = metadata.setdefault("namespace", DEFAULT_NAMESPACE)
    manifest = {**document, "metadata": metadata}
    manifest.pop("status", None)
    return Wanted(Key(namespace, resource.name), manifest, resource)


def _local_faults(resource: LLMDeployment) -> Iterator[str]:
    """What a cluster could do and this machine cannot."""
    uri = resource.spec.model.uri
    if uri.startswith("pvc://"):
        yield PVC_REFUSED
    elif uri.startswith("file://"):
        folder = Path(unquote(urlsplit(uri).path))
        if not (folder / "config.json").is_file():
            yield (
                f"spec.model.uri: there is no model in {folder} (no config.json): "
                f"name a folder that has one, or make one by `sluice model tiny {folder}`"
            )

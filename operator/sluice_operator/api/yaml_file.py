"""Reads an LLMDeployment from a YAML file, for `sluice up` and `sluice simulate`, with one sentence per fault."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from sluice import contract
from sluice_operator.api import InvalidResource, LLMDeployment, parse

MAX_BYTES: Final = 1024 * 1024


class BadFile(Exception):
    """The file is not usable. `faults` has one sentence per fault."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


def file_uri(model: str) -> str:
    """The URI of a path on this machine."""
    return Path(model).expanduser().absolute().as_uri()


def read_resource(path: Path, local_uri: Callable[[str], str] = file_uri) -> tuple[dict[str, Any], LLMDeployment]:
    """Return the only LLMDeployment in a file, as written and as types. Documents of other kinds are ignored.

    A model without a scheme, which only commands on this machine accept, is replaced by `local_uri` of it. Raises
    BadFile, and what `local_uri` raises.
    """
    documents = [one for one in _documents(path) if one is not None]
    for one in documents:
        if not isinstance(one, dict):
            raise BadFile((f"{path}: each document must be a mapping with apiVersion, kind, metadata and spec",))
    ours = [one for one in documents if one.get("kind") == contract.KIND]
    if not ours and len(documents) == 1:
        ours = documents  # one document of a wrong or missing kind: the parser reports it
    if not ours:
        raise BadFile((f"{path}: there is no {contract.KIND} in it",))
    if len(ours) > 1:
        raise BadFile((f"{path}: it has {len(ours)} {contract.KIND}s: give one file to each",))
    document = _with_local_uri(ours[0], local_uri)
    try:
        return document, parse(document)
    except InvalidResource as error:
        raise BadFile(error.faults) from error


def _with_local_uri(document: dict[str, Any], local_uri: Callable[[str], str]) -> dict[str, Any]:
    """The document with a URI in place of a name or a path in spec.model.uri."""
    match document:
        case {"spec": {"model": {"uri": str(uri)} as model} as spec} if uri and "://" not in uri:
            return {**document, "spec": {**spec, "model": {**model, "uri": local_uri(uri)}}}
        case _:
            return document


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

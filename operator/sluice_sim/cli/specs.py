"""The specs of a simulation: one file each, with the replica range that the command line overrides."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sluice_operator.api import InvalidResource, LLMDeploymentSpec, parse
from sluice_operator.api.yaml_file import BadFile, read_resource


@dataclass(frozen=True, slots=True)
class NamedSpec:
    """A spec, and the name of its row in a comparison."""

    name: str
    spec: LLMDeploymentSpec


def read_specs(files: Sequence[Path], least: int | None, most: int | None) -> tuple[NamedSpec, ...]:
    """The spec of each file, named by the file; by its path if two files have the same name.

    `least` and `most` override minReplicas and maxReplicas. Raises BadFile."""
    if not files:
        raise BadFile(("Give a FILE with one LLMDeployment, or several: --spec a.yaml,b.yaml.",))
    short = [file.name for file in files]
    names = short if len(set(short)) == len(short) else [str(file) for file in files]
    for name in names:
        if names.count(name) > 1:
            raise BadFile((f"{name} is given twice: give each file once.",))
    return tuple(
        NamedSpec(name, _overridden(file, dict(_replicas(least, most))))
        for name, file in zip(names, files, strict=True)
    )


def _replicas(least: int | None, most: int | None) -> Iterator[tuple[str, int]]:
    if least is not None:
        yield "minReplicas", least
    if most is not None:
        yield "maxReplicas", most


def _overridden(file: Path, changes: dict[str, Any]) -> LLMDeploymentSpec:
    """The spec of the file with these fields of `scaling`. Raises BadFile."""
    document, resource = read_resource(file)
    if not changes:
        return resource.spec
    spec = document["spec"]
    try:
        return parse(document | {"spec": spec | {"scaling": (spec.get("scaling") or {}) | changes}}).spec
    except InvalidResource as error:
        given = " ".join(f"--{'min' if name == 'minReplicas' else 'max'}-replicas {changes[name]}" for name in changes)
        raise BadFile(tuple(f"{file} with {given}: {fault}" for fault in error.faults)) from error

"""Compares the CRD of a cluster with the one of this version, by its fields and rules.

The texts are not compared as they are, because an API server may write an equal schema in another way.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sluice import contract


@dataclass(frozen=True, slots=True)
class Difference:
    """Names of fields, such as `spec.auth`; a rule is named by its field."""

    missing: tuple[str, ...]  # in the cluster
    unknown: tuple[str, ...]  # to this version


def served_schema(crd: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The schema of the served version; None if the CRD does not serve it."""
    for version in (crd.get("spec") or {}).get("versions") or ():
        if version.get("name") == contract.VERSION and version.get("served"):
            schema: Mapping[str, Any] = (version.get("schema") or {}).get("openAPIV3Schema") or {}
            return schema
    return None


def compare(live: Mapping[str, Any], ours: Mapping[str, Any]) -> Difference:
    """Compare two schemas."""
    there, here = set(_facts(live, "")), set(_facts(ours, ""))
    return Difference(missing=_names(here - there), unknown=_names(there - here))


def _facts(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """(field, its type, or one of its values or rules) of a schema and all below it."""
    yield path, str(schema.get("type"))
    for choice in schema.get("enum") or ():
        yield path, f"enum {choice}"
    for rule in schema.get("x-kubernetes-validations") or ():
        yield path, f"rule {rule.get('rule')}"
    for name, inner in (schema.get("properties") or {}).items():
        if path or name in ("spec", "status"):  # apiVersion, kind and metadata are the API server's own
            yield from _facts(inner, f"{path}.{name}".lstrip("."))
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, Mapping):
            yield from _facts(inner, f"{path}[]")


def _names(facts: set[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(sorted({path or "the resource" for path, _ in facts}))

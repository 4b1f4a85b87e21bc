"""Generates the CustomResourceDefinition from the frozen types, so that the schema has a single source.

pydantic writes JSON Schema; an API server accepts its structural subset: no $ref, no null unions, no titles, and
booleans for exclusive limits. Descriptions, bounds, defaults and CEL rules need no conversion.
"""

from copy import deepcopy
from typing import Any, Final

from sluice import contract
from sluice_operator.api import LLMDeployment, LLMDeploymentSpec, LLMDeploymentStatus

SINGULAR: Final = "llmdeployment"
SHORT_NAMES: Final = ("llmd",)
CATEGORY: Final = "sluice"
CRD_NAME: Final = f"{contract.PLURAL}.{contract.GROUP}"

_COLUMNS: Final = (
    # name, type, JSONPath, description, priority (1: printed only with -o wide)
    ("Model", "string", ".spec.model.uri", "URI of the model", 0),
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', "Whether pods of the current spec serve", 0),
    ("Replicas", "integer", ".status.readyReplicas", "Replicas that are ready", 0),
    ("Desired", "integer", ".status.desiredReplicas", "Replicas that should be ready", 0),
    ("KV%", "integer", ".status.kvOccupancyPercent", "Mean KV cache occupancy, percent", 0),
    ("TTFT", "integer", ".status.slo.ttftMilliseconds", "Time to first token, milliseconds", 0),
    ("ITL", "integer", ".status.slo.itlMilliseconds", "Inter-token latency, milliseconds", 0),
    ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', "Reason of the Ready condition", 0),
    ("Age", "date", ".metadata.creationTimestamp", "Time since creation", 0),
    ("Limit", "integer", ".status.admission.concurrency", "Concurrency limit of one replica, requests", 1),
    ("Image", "string", ".status.image", "Engine image of the pods", 1),
    ("SLO", "string", ".status.slo.attainmentPercent", "Percentage of requests that met both SLO targets", 1),
)


# As in the API reference of every Kubernetes object.
_API_VERSION: Final = "APIVersion defines the versioned schema of this representation of an object."
_KIND: Final = "Kind is a string value representing the REST resource this object represents."


def custom_resource_definition() -> dict[str, Any]:
    """Return the CRD as a plain object that can be written as YAML or applied."""
    schema = {
        "type": "object",
        "description": _words(LLMDeployment.__doc__),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": _API_VERSION},
            "kind": {"type": "string", "description": _KIND},
            "metadata": {"type": "object"},
            "spec": structural_schema(LLMDeploymentSpec),
            "status": structural_schema(LLMDeploymentStatus),
        },
        "x-kubernetes-validations": [{"rule": r.cel, "message": r.sentence} for r in LLMDeployment.RULES],
    }
    version = {
        "name": contract.VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [_column(*column) for column in _COLUMNS],
    }
    names = {
        "kind": contract.KIND,
        "listKind": f"{contract.KIND}List",
        "plural": contract.PLURAL,
        "singular": SINGULAR,
        "shortNames": list(SHORT_NAMES),
        "categories": [CATEGORY],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": CRD_NAME},
        "spec": {"group": contract.GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def structural_schema(model: type[LLMDeploymentSpec] | type[LLMDeploymentStatus]) -> dict[str, Any]:
    """Return the structural OpenAPI v3 schema of a type. Raises ValueError for a union of two non-null types."""
    schema = model.model_json_schema(by_alias=True)
    return _normal(schema, schema.get("$defs", {}))


def _column(name: str, kind: str, path: str, description: str, priority: int) -> dict[str, Any]:
    column: dict[str, Any] = {"name": name, "type": kind, "jsonPath": path, "description": description}
    return {**column, "priority": priority} if priority else column


def _normal(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    node = _without_null(_resolved(node, definitions), definitions)
    kept = {key: value for key, value in node.items() if key not in ("$defs", "title", "propertyNames")}
    if kept.get("default", ...) is None:
        del kept["default"]
    if "description" in kept:
        kept["description"] = _words(kept["description"])
    if "const" in kept:
        kept["enum"] = [kept.pop("const")]
    for bound, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if bound in kept:
            kept[limit], kept[bound] = kept[bound], True
    if "properties" in kept:
        # additionalProperties: false is not structural; the API server prunes unknown fields or rejects them.
        kept.pop("additionalProperties", None)
        kept["properties"] = {name: _normal(value, definitions) for name, value in kept["properties"].items()}
        if "default" in kept:
            # The API server evaluates rules on this default as written, before it applies the properties' defaults.
            filled = {n: value["default"] for n, value in kept["properties"].items() if "default" in value}
            kept["default"] = deepcopy(filled)  # as in `_resolved`
    elif isinstance(kept.get("additionalProperties"), dict):
        kept["additionalProperties"] = _normal(kept["additionalProperties"], definitions)
    if "items" in kept:
        kept["items"] = _normal(kept["items"], definitions)
        kept["items"].pop("description", None)  # the field says what its entries are
    return kept


def _resolved(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the node with its $ref inlined. Keys next to the $ref (description, default) override the target's."""
    if "$ref" not in node:
        return node
    target = deepcopy(definitions[node["$ref"].rpartition("/")[2]])  # shared objects would become YAML aliases
    return {**target, **{key: value for key, value in node.items() if key != "$ref"}}


def _without_null(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Reduce `X | None` to X: an optional field may be absent, but it may not be null."""
    if "anyOf" not in node:
        return node
    choices = [choice for choice in node["anyOf"] if choice.get("type") != "null"]
    if len(choices) != 1:
        raise ValueError(f"not structural: {node['anyOf']}")
    beside = {key: value for key, value in node.items() if key != "anyOf"}
    return {**_resolved(choices[0], definitions), **beside}


def _words(description: str | None) -> str:
    """Join a docstring into one line."""
    return " ".join((description or "").split())

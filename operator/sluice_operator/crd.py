"""From the frozen types to the CustomResourceDefinition: a small normaliser, so that there is one source.

pydantic writes JSON Schema; an API server takes its "structural" subset: no $ref, no null unions, no titles, and
booleans for exclusive limits. Everything else (descriptions, bounds, defaults, CEL rules) is already there.
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
    # name, type, JSONPath, description, priority (1: only with -o wide)
    ("Model", "string", ".spec.model.uri", "Where the model comes from", 0),
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', "Whether it serves", 0),
    ("Replicas", "string", ".status.replicasSummary", "Ready and desired", 0),
    ("KV%", "integer", ".status.kvOccupancyPercent", "How full the KV caches are", 0),
    ("TTFT", "integer", ".status.slo.ttftMilliseconds", "Time to first token, milliseconds", 0),
    ("ITL", "integer", ".status.slo.itlMilliseconds", "Inter-token time, milliseconds", 0),
    ("Reason", "string", ".status.reason", "Why it is as it is", 0),
    ("Age", "date", ".metadata.creationTimestamp", "Since it was created", 0),
    ("Limit", "integer", ".status.admission.concurrency", "Requests that one replica may run at once", 1),
    ("Image", "string", ".spec.engine.image", "The engine's image, where it is not the operator's default", 1),
    ("SLO", "number", ".status.slo.attainmentPercent", "Percent of requests that met both targets", 1),
)


def custom_resource_definition() -> dict[str, Any]:
    """The CRD as a plain object, ready to be written as YAML or applied."""
    schema = {
        "type": "object",
        "description": _words(LLMDeployment.__doc__),
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
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
    """The structural OpenAPI v3 schema of a type."""
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
        # additionalProperties: false is not structural; unknown fields are pruned, or refused by strict clients
        kept.pop("additionalProperties", None)
        kept["properties"] = {name: _normal(value, definitions) for name, value in kept["properties"].items()}
        if "default" in kept:
            # Written out in full, for rules are judged on the default as it stands, before properties add theirs.
            filled = {n: value["default"] for n, value in kept["properties"].items() if "default" in value}
            kept["default"] = deepcopy(filled)  # shared objects would become YAML aliases
    elif isinstance(kept.get("additionalProperties"), dict):
        kept["additionalProperties"] = _normal(kept["additionalProperties"], definitions)
    if "items" in kept:
        kept["items"] = _normal(kept["items"], definitions)
    return kept


def _resolved(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The node with its $ref put in place; what stands beside the $ref (description, default) wins."""
    if "$ref" not in node:
        return node
    target = definitions[node["$ref"].rpartition("/")[2]]
    return {**target, **{key: value for key, value in node.items() if key != "$ref"}}


def _without_null(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """`X | None` as X: an optional field is one that may be left out, not one that may be null."""
    if "anyOf" not in node:
        return node
    choices = [choice for choice in node["anyOf"] if choice.get("type") != "null"]
    if len(choices) != 1:
        raise ValueError(f"not structural: {node['anyOf']}")
    beside = {key: value for key, value in node.items() if key != "anyOf"}
    return {**_resolved(choices[0], definitions), **beside}


def _words(description: str | None) -> str:
    """A docstring as one line."""
    return " ".join((description or "").split())

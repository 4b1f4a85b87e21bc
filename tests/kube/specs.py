"""Specs generated from the CRD's own schema: a small valid spec with some fields drawn anew.

The schema alone admits specs that rules refuse, so a few fields are drawn at a time and a spec is kept if it is valid.
"""

import copy
from typing import Any, Final

from hypothesis import strategies as st

from sluice_operator.api import InvalidResource, LLMDeploymentSpec, parse
from sluice_operator.api.crd import structural_schema

Object = dict[str, Any]

SCHEMA: Final = structural_schema(LLMDeploymentSpec)
BASE: Final[Object] = {"model": {"uri": "pvc://models/m"}, "scaling": {"minReplicas": 1, "maxReplicas": 8}}
EDITED: Final[Object] = BASE | {
    "scaling": {"minReplicas": 3, "maxReplicas": 4},
    "engine": {"scheduling": {"maxNumSeqs": 32}, "template": {"nodeSelector": {"disk": "fast"}}},
}
# The served name is immutable; a paused resource writes nothing; in two modes the count is not of the spec (`in_modes`).
FIXED: Final = frozenset({"model.servedName", "paused", "scaling.mode"})
URIS: Final = (
    "pvc://models/m",
    "pvc://others/a/b",
    "file:///models/m",
    "s3://bucket/m",
    "hf://org/name@main",
    "hf://a/b",
)
MODES: Final = tuple(SCHEMA["properties"]["scaling"]["properties"]["mode"]["enum"])
MOST_FIELDS: Final = 4  # drawn at a time
_MOST_ITEMS: Final = 2


def values(schema: Object) -> st.SearchStrategy[Any]:
    """Values that a structural schema admits; maps and lists stay short."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return _strings(schema)
    match schema["type"]:
        case "object" if "properties" in schema:
            return _objects(schema)
        case "object" if schema.get("x-kubernetes-preserve-unknown-fields"):
            return st.dictionaries(st.sampled_from("ab"), st.text(max_size=1), max_size=_MOST_ITEMS)
        case "object":
            inner = schema["additionalProperties"]
            return st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), values(inner), max_size=_MOST_ITEMS)
        case "array":
            most = min(_MOST_ITEMS, schema.get("maxItems", _MOST_ITEMS))
            return st.lists(values(schema["items"]), min_size=schema.get("minItems", 0), max_size=most)
        case "integer":
            return st.integers(schema.get("minimum"), schema.get("maximum"))
        case "boolean":
            return st.booleans()
        case "string":
            return _strings(schema)
    raise ValueError(f"no values for {schema}")


def _strings(schema: Object) -> st.SearchStrategy[str]:
    least, most = schema.get("minLength", 0), min(schema.get("maxLength", 32), 32)
    if "pattern" not in schema:
        return st.text("abcdefghij-0123456789", min_size=least, max_size=most)
    return st.from_regex(schema["pattern"], fullmatch=True, alphabet=st.characters(codec="ascii")).filter(
        lambda text: least <= len(text) <= schema.get("maxLength", len(text))
    )


def _objects(schema: Object) -> st.SearchStrategy[Object]:
    required = set(schema.get("required", ()))
    fields = {name: values(inner) for name, inner in schema["properties"].items()}
    return st.fixed_dictionaries(
        {name: value for name, value in fields.items() if name in required},
        optional={name: value for name, value in fields.items() if name not in required},
    )


def fields(schema: Object = SCHEMA, prefix: str = "") -> dict[str, Object]:
    """The schema of each field that has no fields of its own, by its path."""
    found: dict[str, Object] = {}
    for name, inner in schema["properties"].items():
        path = f"{prefix}{name}"
        found |= fields(inner, f"{path}.") if "properties" in inner else {path: inner}
    return found


_STRATEGIES: Final = {path: values(inner) for path, inner in fields().items() if path not in FIXED} | {
    "model.uri": st.sampled_from(URIS)  # its pattern alone rarely gives one that is valid
}


@st.composite
def specs(draw: st.DrawFn) -> Object:
    """A valid spec. A field whose value breaks a rule is left out."""
    spec = copy.deepcopy(BASE)
    for path in draw(st.lists(st.sampled_from(sorted(_STRATEGIES)), min_size=1, max_size=MOST_FIELDS, unique=True)):
        changed = _with(spec, path, draw(_STRATEGIES[path]))
        if is_valid(changed):
            spec = changed
    return spec


@st.composite
def in_modes(draw: st.DrawFn) -> Object:
    """A valid spec in any scaling mode, with or without a count of the user's."""
    spec = draw(specs())
    spec = spec | {"scaling": spec["scaling"] | {"mode": draw(st.sampled_from(MODES))}}
    counted = spec | {"replicas": draw(st.integers(0, 8))}
    return counted if draw(st.booleans()) and is_valid(counted) else spec


def is_valid(spec: Object) -> bool:
    """True if the types accept the spec, which evaluates every rule but those on a change."""
    document = {
        "apiVersion": "sluice.dev/v1alpha1",
        "kind": "LLMDeployment",
        "metadata": {"name": "chat", "namespace": "ns"},
        "spec": spec,
    }
    try:
        parse(document)
    except InvalidResource:
        return False
    return True


def _with(spec: Object, path: str, value: Any) -> Object:
    changed = copy.deepcopy(spec)
    *folders, leaf = path.split(".")
    place, schema = changed, SCHEMA
    for folder in folders:
        schema = schema["properties"][folder]
        place = place.setdefault(folder, {})
    place[leaf] = value
    return changed

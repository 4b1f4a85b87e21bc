"""Validation of objects against the stored schemas of other projects' kinds, as strict as server-side field validation."""

import json
from pathlib import Path
from typing import Any, Final

import jsonschema_rs

SCHEMAS: Final = Path(__file__).parent / "data/schemas"
_PRESERVES: Final = "x-kubernetes-preserve-unknown-fields"


def faults(thing: dict[str, Any], plural: str) -> list[str]:
    """One sentence per field that the API server would refuse or, being unknown, drop. Raises OSError without a schema."""
    stored = json.loads((SCHEMAS / f"{plural}.json").read_text())
    given = (thing["apiVersion"], thing["kind"])
    if given != (f"{stored['group']}/{stored['version']}", stored["kind"]):
        return [f"apiVersion and kind are {given}, the schema is of {stored['kind']}"]
    schema = _strict(stored["schema"])
    schema["properties"] |= {"apiVersion": {}, "kind": {}, "metadata": {}}
    return [
        f"{'.'.join(map(str, each.instance_path))}: {each.message}" for each in jsonschema_rs.iter_errors(schema, thing)
    ]


def _strict(schema: Any) -> Any:
    """The schema with unknown fields refused. `x-kubernetes-int-or-string` allows both types."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        name: {field: _strict(each) for field, each in value.items()} if name == "properties" else _strict(value)
        for name, value in schema.items()
    }
    if made.get("x-kubernetes-int-or-string"):
        made["type"] = ["integer", "string"]
    if "properties" in made and not made.get(_PRESERVES) and "additionalProperties" not in made:
        made["additionalProperties"] = False
    return made

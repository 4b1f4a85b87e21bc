"""Closes the objects of a JSON schema that leave open whether they have more properties than those they list.

A schema without `additionalProperties` allows any more, and a small model invents them until the length limit. xgrammar,
vLLM's default, closes such objects too. An output of the closed schema is one of the schema's: nothing is relaxed.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sluice_engine.grammar.references import target

# Keywords that apply another schema to the same value, so that properties of one part are additional for the other.
_IN_PLACE: Final = ("allOf", "anyOf", "oneOf", "$ref")
_UNIONS: Final = ("anyOf", "oneOf")
_UNFOLLOWED: Final = frozenset(
    {"not", "if", "$id", "id", "$anchor", "$dynamicRef", "$recursiveRef", "dependentSchemas", "dependencies"}
)
_ANNOTATIONS: Final = frozenset({"title", "description", "default", "examples", "$defs", "definitions", "$schema"})
_OPEN: Final = frozenset(
    {"additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames", "minProperties"}
)
_MAPS: Final = ("properties", "patternProperties")
_LISTS: Final = (*_UNIONS, "allOf", "prefixItems")
_SINGLE: Final = (
    "items",
    "additionalProperties",
    "additionalItems",
    "unevaluatedProperties",
    "unevaluatedItems",
    "contains",
)


def closed(schema: Any) -> Any:
    """Returns the schema with such objects closed, except those that another part of the schema combines with; the schema
    itself where it has a keyword whose effect on other keywords is not followed.
    """
    combined: dict[tuple[int, bool], dict[str, Any]] = {}
    open_nodes = [(schema, False)]
    while open_nodes:
        node, joined = open_nodes.pop()
        if not isinstance(node, dict) or (id(node), joined) in combined:
            continue
        if not _UNFOLLOWED.isdisjoint(node):
            return schema
        combined[id(node), joined] = node
        for name, part in _parts(node):
            if name != "$ref":
                open_nodes.append((part, joined or _combines(node, name)))
            elif (found := target(part, schema)) is not None:
                open_nodes.append((found, joined or _combines(node, name)))
            else:
                return schema
    shut = {
        key
        for key, joined in combined
        if not joined and (key, True) not in combined and _closable(combined[key, False])
    }
    return _copied(schema, shut) if shut else schema


def _combines(node: Mapping[str, Any], name: str) -> bool:
    """Whether the parts under a keyword, and all within them, apply together with other parts of the node."""
    if name == "patternProperties" or "patternProperties" in node:
        return True
    applied = [each for each in _IN_PLACE if each in node]
    if name not in _IN_PLACE:
        return bool(applied)
    alone = set(node) - _ANNOTATIONS <= {name, "type", "discriminator"}
    return not alone or (name == "allOf" and len(node[name]) > 1)


def _closable(node: Mapping[str, Any]) -> bool:
    properties, required = node.get("properties"), node.get("required", [])
    return (
        isinstance(properties, dict)
        and bool(properties)
        and isinstance(required, list)
        and all(isinstance(name, str) and name in properties for name in required)
        and _OPEN.isdisjoint(node)
        and not any(name in node for name in _IN_PLACE)
    )


def _parts(node: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Schemas within a schema, each with the keyword that it is under."""
    for name, value in node.items():
        if name in _MAPS and isinstance(value, dict):
            yield from ((name, each) for each in value.values())
        elif (name in _LISTS or name == "items") and isinstance(value, list):
            yield from ((name, each) for each in value)
        elif name in _SINGLE or name == "$ref":
            yield name, value


def _copied(value: Any, shut: set[int]) -> Any:
    """A copy in which the dicts of these identities are closed."""
    if isinstance(value, list):
        return [_copied(each, shut) for each in value]
    if not isinstance(value, dict):
        return value
    copy = {name: _copied(each, shut) for name, each in value.items()}
    return copy | {"additionalProperties": False} if id(value) in shut else copy

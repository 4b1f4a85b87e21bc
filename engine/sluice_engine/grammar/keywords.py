"""Which keywords of a JSON schema hold schemas, and which hold data that only looks like one. Standard library only."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from sluice_engine.grammar.references import target

MAPS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)  # names of the client's own, each with a schema
SCHEMAS: Final = frozenset(
    {
        "items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "additionalProperties",
        "unevaluatedProperties", "propertyNames", "allOf", "anyOf", "oneOf", "not", "if", "then", "else",
    }
)  # fmt: skip
DATA: Final = frozenset({"const", "enum", "default", "examples"})
# What is true of every value, with the keyword that says it: libraries write these although they demand nothing.
NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    "uniqueItems": (False,),
    "propertyNames": (True, {}, {"type": "string"}),  # zod's records
    "unevaluatedItems": (True, {}),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
}
DRAFTS: Final = ("https://json-schema.org/", "http://json-schema.org/")
# Keywords of draft 3 alone, which the compiler does not know and would ignore; what to write instead.
DRAFT_3: Final[Mapping[str, str]] = {
    "divisibleBy": "multipleOf",
    "disallow": "the types that are allowed",
    "extends": "allOf",
}


def schemas_in(schema: Any) -> Iterator[dict[str, Any]]:
    """The schema, every one in it, and what references in it point to; without recursion: the depth is not bounded yet."""
    todo, seen = [schema], set[int]()
    while todo:
        node = todo.pop()
        if isinstance(node, list):
            todo += node
        elif isinstance(node, dict) and id(node) not in seen:
            seen.add(id(node))
            yield node
            todo.append(target(node.get("$ref"), schema))
            for name, value in node.items():
                if name in MAPS and isinstance(value, dict):
                    todo += value.values()
                elif name in SCHEMAS:
                    todo.append(value)


def changed(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """A copy with `change` applied to each schema in it. Keywords that are not known may hold schemas too."""
    if isinstance(schema, list):
        return [changed(each, change) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    copy: dict[str, Any] = {}
    for name, value in schema.items():
        if name in MAPS and isinstance(value, Mapping):
            copy[name] = {key: changed(each, change) for key, each in value.items()}
        else:
            copy[name] = value if name in DATA else changed(value, change)
    return change(copy)


def draft_3_keyword(schema: Any) -> str | None:
    """A keyword of draft 3 in the schema, with what to write instead of it; None without one."""
    for node in schemas_in(schema):
        for name, instead in DRAFT_3.items():
            if name in node:
                return f"{name}; write {instead}"
        if node.get("required") is True:
            return "required: true; write a list of names beside properties"
    return None


def without_neutral(schema: Any) -> Any:
    """A copy without keywords that demand nothing, which the compiler would refuse, and without the names of drafts: by an
    older draft the compiler would ignore the keywords of newer ones.
    """
    return changed(schema, lambda node: {name: value for name, value in node.items() if not _is_neutral(name, value)})


def _is_neutral(name: str, value: Any) -> bool:
    if name == "$schema":
        return isinstance(value, str) and value.startswith(DRAFTS)
    return any(type(value) is type(each) and value == each for each in NEUTRAL.get(name, ()))

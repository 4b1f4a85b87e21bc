"""Whether a JSON schema has an output that ends: one that needs itself within itself has none. Standard library only."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sluice_engine.grammar.references import target

PASSES: Final = 32  # over all nodes; a schema that is not settled by then is left to the compiler and the length limit


def ends(schema: Any) -> bool:
    """False if every output of the schema is without end."""
    nodes = list(_nodes(schema))
    anchors = {f"#{node['$anchor']}": node for node in nodes if isinstance(node.get("$anchor"), str)}
    finite: set[int] = set()
    for number in range(PASSES):
        before = len(finite)
        for node in nodes if number % 2 else reversed(nodes):
            if id(node) not in finite and _has_finite(node, schema, anchors, finite):
                finite.add(id(node))
        if len(finite) == before:
            return not isinstance(schema, dict) or id(schema) in finite
    return True


def _has_finite(node: dict[str, Any], root: Any, anchors: Mapping[str, Any], finite: set[int]) -> bool:
    """Whether the node has a finite output, given the nodes that are known to have one."""

    def known(part: Any) -> bool:
        return not isinstance(part, dict) or id(part) in finite

    if "enum" in node or "const" in node:
        return True
    reference = node.get("$ref")
    if isinstance(reference, str) and not known(anchors.get(reference, target(reference, root))):
        return False
    if not all(map(known, _list(node.get("allOf")))):
        return False
    for name in ("anyOf", "oneOf"):
        parts = _list(node.get(name))
        if parts and not any(map(known, parts)):
            return False
    if node.get("type") == "object":
        properties = node.get("properties")
        needed = [name for name in _list(node.get("required")) if isinstance(name, str)]
        return not isinstance(properties, dict) or all(known(properties.get(name)) for name in needed)
    if node.get("type") == "array":
        least = node.get("minItems", 0)
        return not (isinstance(least, int) and least > 0) or known(node.get("items"))
    return True


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    todo = [schema]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            yield node
            todo += node.values()
        elif isinstance(node, list):
            todo += node


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []

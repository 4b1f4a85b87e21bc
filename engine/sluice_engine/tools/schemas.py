"""The grammar of an answer that must be a call: arguments of one function, or a list of calls."""

import json
from collections.abc import Mapping
from typing import Any, Final

from sluice_engine.grammar import Grammar
from sluice_engine.tools.definition import Tool, ToolChoice

NOTHING: Final = {"type": "object", "properties": {}, "additionalProperties": False}


def grammar_of(choice: ToolChoice) -> Grammar | None:
    """The grammar of the answer; None where the model decides."""
    if choice.mode == "named":
        return arguments_grammar(next(tool for tool in choice.tools if tool.name == choice.name))
    if choice.mode != "required":
        return None
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": tool.name}, "arguments": {"$ref": f"#/$defs/{place}"}},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for place, tool in enumerate(choice.tools)
    ]
    schema = {
        "type": "array",
        "minItems": 1,
        "items": {"anyOf": calls},
        "$defs": {str(place): _moved(_schema(tool), f"#/$defs/{place}") for place, tool in enumerate(choice.tools)},
    }
    if not choice.parallel:
        schema["maxItems"] = 1
    return Grammar("json_schema", json.dumps(schema))


def arguments_grammar(tool: Tool) -> Grammar:
    """The grammar of one function's arguments."""
    return Grammar("json_schema", json.dumps(_schema(tool)))


def _schema(tool: Tool) -> Mapping[str, Any]:
    return NOTHING if tool.parameters is None else tool.parameters


def _moved(schema: Any, root: str) -> Any:
    """The schema with its references rewritten for its new place in another one."""
    if isinstance(schema, list):
        return [_moved(each, root) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    moved = {name: _moved(value, root) for name, value in schema.items()}
    if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
        moved["$ref"] = root + reference[1:]
    return moved

"""The grammars of answers with calls: arguments of one function, a list of calls, or an answer or calls."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sluice_engine.grammar import WHITESPACE, Grammar
from sluice_engine.grammar.closing import closed
from sluice_engine.grammar.keywords import changed, without_neutral
from sluice_engine.tools.definition import Tool, ToolChoice
from sluice_engine.tools.dialects import Dialect

CALL_RULES: Final[dict[Dialect, str]] = {
    "hermes": r'call: "<tool_call>" /\n?/ object /\n?/ "</tool_call>" /\n?/',
    "llama": "call: object",
}
NOTHING: Final = {"type": "object", "properties": {}, "additionalProperties": False}
ANNOTATIONS: Final = frozenset({"title", "description", "$schema", "$id", "$comment"})
DESCRIPTIVE: Final = frozenset(
    {"title", "description", "default", "examples", "$comment"}
)  # most of many schemas' length


def grammar_of(choice: ToolChoice) -> Grammar | None:
    """The grammar of the answer; None where the model decides."""
    if choice.mode == "named":
        return arguments_grammar(next(tool for tool in choice.tools if tool.name == choice.name))
    if choice.mode != "required":
        return None
    calls = [_call({"const": tool.name}, "arguments", _reference(place)) for place, tool in enumerate(choice.tools)]
    schema = {
        "type": "array",
        "minItems": 1,
        "items": {"anyOf": calls},
        "$defs": _definitions(dict(enumerate(choice.tools))),
    }
    if not choice.parallel:
        schema["maxItems"] = 1
    return Grammar("json_schema", json.dumps(schema))


def answer_or_calls(answer: Grammar, choice: ToolChoice, dialect: Dialect) -> Grammar:
    """The grammar of an answer that follows a JSON schema, or of calls in the model's notation. The arguments of a strict
    tool follow its schema. Those of others are any object: a tool may have keywords that cannot be enforced.

    Mistral's mark of calls is a token and no text, and Qwen3-Coder's arguments are no JSON: there only the answer is possible.
    """
    if answer.kind != "json_schema" or dialect not in CALL_RULES:
        return answer
    member = "parameters" if dialect == "llama" else "arguments"
    repeat = "+" if choice.parallel and dialect == "hermes" else ""
    rules = (
        f"start: answer | call{repeat}",
        f"answer: %json {_spaced(json.loads(answer.text))}",
        CALL_RULES[dialect],
        f"object: %json {_spaced(_any_call(choice.tools, member))}",
    )
    return Grammar("lark", "\n".join(rules))


def _any_call(tools: Sequence[Tool], member: str) -> dict[str, Any]:
    """The schema of a call of one of the tools."""
    strict = {place: tool for place, tool in enumerate(tools) if tool.strict}
    calls = [_call({"const": tool.name}, member, _reference(place)) for place, tool in strict.items()]
    if others := [tool.name for tool in tools if not tool.strict]:
        calls.append(_call({"enum": others}, member, {"type": "object"}))
    return calls[0] if not strict else {"anyOf": calls, "$defs": _definitions(strict)}


def _call(name: Mapping[str, Any], member: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": name, member: arguments},
        "required": ["name", member],
        "additionalProperties": False,
    }


def _definitions(tools: Mapping[int, Tool]) -> dict[str, Any]:
    return {str(place): _moved(_schema(tool), f"#/$defs/{place}") for place, tool in tools.items()}


def _reference(place: int) -> dict[str, str]:
    return {"$ref": f"#/$defs/{place}"}


def _spaced(schema: Any) -> str:
    """The schema as text, with the whitespace of every JSON output."""
    whole = without_neutral(closed(schema)) if isinstance(schema, dict) else {"allOf": [schema]}
    return json.dumps(whole | {"x-guidance": {"whitespace_pattern": WHITESPACE, "lenient": False}})


def arguments_grammar(tool: Tool) -> Grammar:
    """The grammar of one function's arguments."""
    return Grammar("json_schema", json.dumps(_schema(tool)))


def _schema(tool: Tool) -> Mapping[str, Any]:
    """The schema of the arguments, which are an object whether the schema says so or not. Frameworks describe a function
    without arguments as an object with no properties.
    """
    given = tool.parameters
    if given is None or _lists_nothing(given):
        return NOTHING
    return {"type": "object", **given}


def _lists_nothing(schema: Mapping[str, Any]) -> bool:
    known = {name: value for name, value in schema.items() if name not in ANNOTATIONS}
    return known.pop("required", []) == [] and known == {"type": "object", "properties": {}}


def _moved(schema: Mapping[str, Any], root: str) -> Any:
    """The schema with its references rewritten for its new place in another one, where it has no name of its own, and
    without what describes and demands nothing.
    """

    def move(node: dict[str, Any]) -> dict[str, Any]:
        node = {name: value for name, value in node.items() if name not in DESCRIPTIVE}
        reference = node.get("$ref")
        if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
            return node
        return node | {"$ref": root + reference[1:]}

    return changed({name: value for name, value in schema.items() if name not in ("$id", "id")}, move)

"""Parses what a chat says about tools: the functions on offer, whether one must be called, and earlier calls."""

import re
from collections.abc import Iterator
from typing import Any, Final

import orjson

from sluice.httpapi.nesting import check_depth
from sluice_engine.grammar import GrammarInvalid, check_schema
from sluice_engine.grammar.grammar import MAX_CHARACTERS
from sluice_engine.grammar.keywords import schemas_in
from sluice_engine.server.api.fields import Object, invalid, only
from sluice_engine.server.api.generation.output_format import refused
from sluice_engine.server.api.request_fields import Flag, Form, Text, fields, list_of, object_form
from sluice_engine.tools import Tool, ToolChoice
from sluice_engine.tools.definition import PastCall

MAX_TOOLS: Final = 128
MAX_CALLS: Final = 128
MAX_DESCRIPTION: Final = 32_768
NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}", re.ASCII)
TYPES: Final = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
MODES: Final = ("none", "auto", "required")
INVALID_ARGUMENTS: Final = "invalid_json"
# A named group, an escape that Python lacks, or another escape, behind whose backslash nothing begins.
_ECMA: Final = re.compile(r"\(\?<(?![=!])|\\(?:[pPu]\{\w[^{}]*\}|c[A-Za-z]|k<\w+>|.)", re.DOTALL)

PARALLEL: Final = Flag("parallel_tool_calls", True)
PARAMETERS: Final[Object] = {"type": "object", "properties": {"type": {"const": "object"}}}
FUNCTION: Final = fields(
    Form("name", {"type": "string", "pattern": f"^{NAME.pattern}$"}),
    Text("description", MAX_DESCRIPTION),
    Form("parameters", PARAMETERS),
    Flag("strict"),
)
_TYPE: Final = Form("type", {"const": "function"})
TOOLS: Final = Form(
    "tools",
    list_of(
        object_form(fields(_TYPE, Form("function", object_form(FUNCTION, ("name",)))), ("type", "function"), more=True),
        0,
        MAX_TOOLS,
    ),
)
NAMED_CHOICE: Final = object_form(
    fields(_TYPE, Form("function", object_form(fields(Form("name", {"type": "string"})), ("name",), more=True))),
    ("type", "function"),
    more=True,
)
_ALLOWED: Final = fields(
    Form("mode", {"enum": ["auto", "required"]}), Form("tools", list_of(NAMED_CHOICE, 1, MAX_TOOLS))
)
ALLOWED_CHOICE: Final = object_form(
    fields(Form("type", {"const": "allowed_tools"}), Form("allowed_tools", object_form(_ALLOWED, ("mode", "tools")))),
    ("type", "allowed_tools"),
)
TOOL_CHOICE: Final = Form(
    "tool_choice", {"anyOf": [{"type": "string", "enum": list(MODES)}, NAMED_CHOICE, ALLOWED_CHOICE]}
)
CALLS: Final = Form(
    "tool_calls",
    list_of(
        object_form(
            fields(
                Form("id", {}),
                _TYPE,
                Form(
                    "function",
                    object_form(
                        fields(Form("name", {"type": "string"}), Form("arguments", {"type": ["string", "object"]})),
                        ("name", "arguments"),
                        more=True,
                    ),
                ),
            ),
            ("function",),
            more=True,
        ),
        0,
        MAX_CALLS,
    ),
)
FIELDS: Final = fields(TOOLS, TOOL_CHOICE, PARALLEL)


def tool_choice(body: Object) -> ToolChoice:
    """Returns the tools and how they may be called. Raises BadRequest."""
    tools = _tools(body.get("tools"))
    parallel = PARALLEL.of(body)
    value = body.get("tool_choice")
    if value is None:
        return ToolChoice(tools, "auto" if tools else "none", "", parallel)
    if isinstance(value, str):
        if value not in MODES:
            raise invalid("tool_choice", f"must be one of {', '.join(MODES)}, or name a function")
        if value != "none" and not tools:
            raise invalid("tool_choice", "needs tools")
        mode = {"none": "none", "auto": "auto", "required": "required"}[value]
        return ToolChoice(tools, mode, "", parallel)  # type: ignore[arg-type]  # one of MODES
    if isinstance(value, dict) and value.get("type") == "allowed_tools":
        return _allowed(value.get("allowed_tools"), tools, parallel)
    name = _named(value)
    if name not in {tool.name for tool in tools}:
        raise invalid("tool_choice", f"names {name!r}, which is not among the tools")
    return ToolChoice(tools, "named", name, parallel)


def _allowed(value: Any, tools: tuple[Tool, ...], parallel: bool) -> ToolChoice:
    """Some of the tools: the others are as if they were not on offer."""
    mode, chosen = (value.get("mode"), value.get("tools")) if isinstance(value, dict) else (None, None)
    if mode not in ("auto", "required") or not isinstance(chosen, list) or not 1 <= len(chosen) <= MAX_TOOLS:
        raise invalid("tool_choice", "of allowed tools must have the mode auto or required, and a list of functions")
    names = {_named(each) for each in chosen}
    if unknown := names - {tool.name for tool in tools}:
        raise invalid("tool_choice", f"names {min(unknown)!r}, which is not among the tools")
    return ToolChoice(tuple(tool for tool in tools if tool.name in names), mode, "", parallel)


def past_calls(message: Object, where: str) -> tuple[PastCall, ...]:
    """Returns the calls of an assistant's message. Raises BadRequest."""
    calls = message.get("tool_calls")
    if calls is None:
        return ()
    if not isinstance(calls, list) or len(calls) > MAX_CALLS:
        raise invalid(f"{where}.tool_calls", f"must be a list of at most {MAX_CALLS} calls")
    return tuple(_past_call(call, f"{where}.tool_calls[{place}]") for place, call in enumerate(calls))


def _past_call(call: Any, where: str) -> PastCall:
    function = call.get("function") if isinstance(call, dict) else None
    if (
        not isinstance(function, dict)
        or not isinstance(function.get("name"), str)
        or call.get("type", "function") != "function"
    ):
        raise invalid(where, "must be an object {id, type: 'function', function: {name, arguments}}")
    arguments, within = function.get("arguments"), f"{where}.function.arguments"
    if isinstance(arguments, str):
        arguments = _past_arguments(arguments, within)
    if not isinstance(arguments, dict):
        raise invalid(within, "must be a string")
    return PastCall(str(call.get("id") or ""), function["name"], arguments)


def _past_arguments(text: str, where: str) -> Object:
    """Arguments as the model wrote them. It may have written no object, and an agent sends them back to have them corrected:
    templates need an object, so that the text then stands in one.
    """
    try:
        found = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        return {INVALID_ARGUMENTS: text}
    check_depth(found, where)
    return found if isinstance(found, dict) else {INVALID_ARGUMENTS: text}


def _named(value: Any) -> str:
    function = value.get("function") if isinstance(value, dict) and value.get("type") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise invalid("tool_choice", f"must be one of {', '.join(MODES)}, or {{type: 'function', function: {{name}}}}")
    return name


def _tools(value: Any) -> tuple[Tool, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAX_TOOLS:
        raise invalid("tools", f"must be a list of at most {MAX_TOOLS} tools")
    tools = tuple(_tool(entry, f"tools[{place}]") for place, entry in enumerate(value))
    names = [tool.name for tool in tools]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise invalid("tools", f"names {repeated!r} twice")
    return tools


def _tool(entry: Any, where: str) -> Tool:
    if not isinstance(entry, dict) or entry.get("type") != "function" or not isinstance(entry.get("function"), dict):
        raise invalid(where, "must be an object {type: 'function', function: {name, description, parameters}}")
    function, within = entry["function"], f"{where}.function"
    only(function, FUNCTION, f"{within}.")
    name, description = function.get("name"), function.get("description")
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        raise invalid(f"{within}.name", "must be 1 to 128 letters, digits and _ . -")
    if not isinstance(description, str | None) or len(description or "") > MAX_DESCRIPTION:
        raise invalid(f"{within}.description", f"must be a string of at most {MAX_DESCRIPTION} characters")
    if not isinstance(function.get("strict"), bool | None):
        raise invalid(f"{within}.strict", "must be true or false")
    parameters = function.get("parameters")
    if parameters is not None:
        _check_parameters(parameters, f"{within}.parameters")
    return Tool(name, description or "", parameters, strict=bool(function.get("strict")))


def _check_parameters(schema: Any, where: str) -> None:
    """Bounds, and what no model could follow. Whether each keyword can be enforced matters only if a call must be made
    or the tool is strict.
    """
    if not isinstance(schema, dict):
        raise invalid(where, "must be a JSON schema of type object")
    if schema.get("type", "object") != "object":
        raise invalid(where, "must be of type object")
    try:
        if len(orjson.dumps(schema)) > MAX_CHARACTERS:  # first: the checks walk all of it
            raise GrammarInvalid(f"it has more than {MAX_CHARACTERS} characters")
        check_schema(schema)
        for kind, pattern in _types_and_patterns(schema):
            if not set(kind) <= TYPES:
                raise GrammarInvalid(f"it has the unknown type {min(set(kind) - TYPES)!r}")
            if not isinstance(pattern, str):
                raise GrammarInvalid("a pattern must be a string")
            re.compile(_as_python(pattern))
    except GrammarInvalid as error:
        raise refused(where, error) from error
    except (re.error, OverflowError, RecursionError, ValueError) as error:
        raise refused(where, GrammarInvalid(f"a pattern is not a regular expression: {error}")) from error


def _types_and_patterns(schema: Any) -> Iterator[tuple[list[str], Any]]:
    """Of every schema within the schema: its types, and its pattern or ""."""
    for node in schemas_in(schema):
        kind = node.get("type", [])
        kinds = [kind] if isinstance(kind, str) else [str(each) for each in kind] if isinstance(kind, list) else ["?"]
        yield kinds, node.get("pattern", "")


def _as_python(pattern: str) -> str:
    """Returns a pattern as JSON schemas have them, of ECMA 262, with Python's forms of what only that one writes so."""

    def rewritten(found: re.Match[str]) -> str:
        text = found.group()
        match text[:2]:
            case "(?":
                return "(?P<"
            case r"\k" if len(text) > 2:
                return f"(?P={text[3:-1]})"
            case r"\u" if len(text) > 2:
                return f"\\U{text[3:-1]:0>8}"
            case r"\p" | r"\P" | r"\c" if len(text) > 2:
                return r"\w"  # some class of characters: what matches does not matter here
        return text

    return _ECMA.sub(rewritten, pattern)

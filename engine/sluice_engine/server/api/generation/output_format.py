"""Parses what the output must be: OpenAI's `response_format`, and the names that vLLM gives to other kinds of grammar."""

from dataclasses import dataclass
from typing import Any, Final

import orjson

from sluice.httpapi.nesting import check_depth
from sluice_engine.grammar import Grammar, GrammarInvalid, check_bounds
from sluice_engine.grammar.grammar import ANY_OBJECT, MAX_CHOICES, Kind
from sluice_engine.server.api.fields import Object, invalid, only
from sluice_engine.server.api.request_fields import NULL, Flag, Form, Neutral, Text, fields, list_of, object_form
from sluice_engine.server.errors import BadRequest

_STRUCTURED: Final = {
    "json": "json",
    "regex": "regex",
    "choice": "choice",
    "grammar": "grammar",
    "json_object": "object",
}
_FORMATS: Final = "text, json_object, json_schema"

SCHEMA: Final[Object] = {"type": ["object", "boolean", "string"], "description": "A JSON schema, or its text."}
_WORDS: Final[Object] = {"type": "string", "minLength": 1}
_BY_KIND: Final[dict[str, Object]] = {
    "json": SCHEMA,
    "regex": _WORDS,
    "choice": list_of(_WORDS, 1, MAX_CHOICES),
    "grammar": _WORDS,
    "object": {"type": "boolean"},
}
NAMED_SCHEMA: Final = fields(Form("name", _WORDS), Form("schema", SCHEMA), Flag("strict"), Form("description", {}))
NAMED_SCHEMA_REQUIRED: Final = ("name", "schema")
RESPONSE_FORMAT: Final = Form(
    "response_format",
    {
        "anyOf": [
            object_form(fields(Form("type", {"enum": ["text", "json_object"]})), ("type",)),
            object_form(
                fields(
                    Form("type", {"const": "json_schema"}),
                    Form("json_schema", object_form(NAMED_SCHEMA, NAMED_SCHEMA_REQUIRED)),
                ),
                ("type", "json_schema"),
            ),
        ]
    },
)
# vLLM's options of its backends: nothing here has a backend to choose, a fallback, or looser JSON.
BACKEND: Final = Text("guided_decoding_backend", 64)
WHITESPACE: Final = Neutral("guided_whitespace_pattern", ())
OPTIONS: Final = tuple(
    Neutral(f"structured_outputs.{name}", accepted)
    for name, accepted in (
        ("disable_fallback", (True, False)),
        ("disable_any_whitespace", (False,)),
        ("disable_additional_properties", (False,)),
        ("whitespace_pattern", ()),
        ("structural_tag", ()),
    )
)
STRUCTURED_OUTPUTS: Final = Form(
    "structured_outputs",
    object_form(fields(*(Form(name, _BY_KIND[kind]) for name, kind in _STRUCTURED.items()), *OPTIONS), more=NULL),
)
GUIDED: Final = tuple(Form(f"guided_{kind}", _BY_KIND[kind]) for kind in ("json", "regex", "choice", "grammar"))
FIELDS: Final = fields(RESPONSE_FORMAT, *GUIDED, STRUCTURED_OUTPUTS, BACKEND, WHITESPACE)


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """A grammar, and the field of the request that gave it. `parts` make up the grammar: a fault of one names it."""

    grammar: Grammar
    param: str
    parts: "tuple[OutputFormat, ...]" = ()


def output_format(body: Object) -> OutputFormat | None:
    """Returns what the output must be; None for any text. Raises BadRequest."""
    if body.keys().isdisjoint(FIELDS):
        return None
    BACKEND.of(body)
    WHITESPACE.check(body)
    found = [
        each
        for each in (
            _response_format(body.get("response_format")),
            *(_guided(body, name) for name in ("json", "regex", "choice", "grammar")),
            _structured_outputs(body.get("structured_outputs")),
        )
        if each is not None
    ]
    if len(found) > 1:
        raise invalid(found[1].param, f"and {found[0].param} exclude each other")
    for each in found:
        if body.get("ignore_eos") or body.get("min_tokens"):
            raise invalid(each.param, "ends the output where it is complete; leave out ignore_eos and min_tokens")
        try:
            check_bounds(each.grammar)
        except GrammarInvalid as error:
            raise refused(each.param, error) from error
    return found[0] if found else None


def refused(param: str, error: GrammarInvalid) -> BadRequest:
    """Returns the error for a grammar that cannot be enforced."""
    return BadRequest(
        f"{param} cannot be enforced: {error}. Nothing of a grammar is ignored; change or remove that part.",
        param=param,
        code="invalid_value",
    )


def schema_format(schema: Any, param: str) -> OutputFormat:
    """Returns the format for a JSON schema, or for its text. Raises BadRequest."""
    if isinstance(schema, str):
        try:
            schema = orjson.loads(schema)
        except orjson.JSONDecodeError as error:
            raise invalid(param, "must be a JSON schema, as an object or as its text") from error
        check_depth(schema, param)
    if not isinstance(schema, dict | bool):
        raise invalid(param, "must be a JSON schema")
    grammar = Grammar("json_schema", orjson.dumps(schema).decode())
    try:
        check_bounds(grammar)
    except GrammarInvalid as error:
        raise refused(param, error) from error
    return OutputFormat(grammar, param)


def _response_format(value: Any) -> OutputFormat | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise invalid("response_format", f"must be an object whose type is one of {_FORMATS}")
    match value["type"]:
        case "text":
            only(value, frozenset({"type"}), "response_format.")
            return None
        case "json_object":
            only(value, frozenset({"type"}), "response_format.")
            return OutputFormat(Grammar("json_schema", ANY_OBJECT), "response_format")
        case "json_schema":
            only(value, frozenset({"type", "json_schema"}), "response_format.")
            return _json_schema(value.get("json_schema"))
    raise invalid("response_format", f"must have one of the types {_FORMATS}")


def _json_schema(value: Any) -> OutputFormat:
    where = "response_format.json_schema"
    if not isinstance(value, dict):
        raise invalid(where, "must be an object with name and schema")
    only(value, NAMED_SCHEMA, f"{where}.")
    if not isinstance(value.get("name"), str) or not value["name"]:
        raise invalid(f"{where}.name", "is required and must be a string")
    if value.get("schema") is None:
        raise invalid(f"{where}.schema", "is required")
    if not isinstance(value.get("strict", False), bool | None):
        raise invalid(f"{where}.strict", "must be true or false")
    return schema_format(value["schema"], f"{where}.schema")  # always strict: nothing is gained by less


def _guided(body: Object, kind: str) -> OutputFormat | None:
    value = body.get(f"guided_{kind}")
    return None if value is None else _format(kind, value, f"guided_{kind}")


def _structured_outputs(value: Any) -> OutputFormat | None:
    if value is None:
        return None
    where = "structured_outputs"
    if not isinstance(value, dict):
        raise invalid(where, f"must be an object with one of {', '.join(_STRUCTURED)}")
    given = {name: entry for name, entry in value.items() if entry is not None}
    dotted = {f"{where}.{name}": entry for name, entry in given.items()}
    for option in OPTIONS:
        option.check(dotted)
        given.pop(option.name.removeprefix(f"{where}."), None)
    only(given, frozenset(_STRUCTURED), f"{where}.")
    if not given:
        return None
    if len(given) > 1:
        raise invalid(where, f"must have only one of {', '.join(_STRUCTURED)}")
    ((name, entry),) = given.items()
    return _format(_STRUCTURED[name], entry, f"{where}.{name}")


def _format(kind: str, value: Any, param: str) -> OutputFormat | None:
    match kind:
        case "json":
            return schema_format(value, param)
        case "object":
            if not isinstance(value, bool):
                raise invalid(param, "must be true or false")
            return OutputFormat(Grammar("json_schema", ANY_OBJECT), param) if value else None
        case "choice":
            if (
                not isinstance(value, list)
                or not 1 <= len(value) <= MAX_CHOICES
                or not all(isinstance(each, str) and each for each in value)
            ):
                raise invalid(param, f"must be a list of 1 to {MAX_CHOICES} non-empty strings")
            return OutputFormat(Grammar("choice", orjson.dumps(value).decode()), param)
    if not isinstance(value, str) or not value:
        raise invalid(param, "must be a non-empty string")
    notation: Kind = "regex" if kind == "regex" else "ebnf"
    return OutputFormat(Grammar(notation, value), param)

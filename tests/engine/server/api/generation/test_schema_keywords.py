"""Each keyword of each draft of JSON Schema over a socket: enforced, or a 400 that names it. None is ignored in silence.

An unknown keyword, a misspelt one too, demands nothing by the standard, and is ignored.
"""

import json
from typing import Any

import jsonschema
import pytest
from jsonschema_specifications import REGISTRY

from sluice_engine.grammar import Grammar
from tests.engine.grammar.test_closing import allows
from tests.engine.serving import Answer, Served

PARAM = "guided_json"
INTEGER: dict[str, Any] = {"type": "integer"}
DRAFTS = (
    "http://json-schema.org/draft-03/schema#",
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
)


def array(**fields: Any) -> dict[str, Any]:
    return {"type": "array", "items": INTEGER, "maxItems": 3} | fields


def thing(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": INTEGER, "b": INTEGER}, "additionalProperties": False} | fields


# keyword → a schema with it, an output of that schema, and one that it forbids
ENFORCED: dict[str, tuple[dict[str, Any], str, str]] = {
    "type": ({"type": "boolean"}, "true", "1"),
    "enum": ({"enum": [1, "a"]}, '"a"', "2"),
    "const": ({"const": 5}, "5", "6"),
    "multipleOf": (INTEGER | {"multipleOf": 7}, "14", "15"),
    "minimum": (INTEGER | {"minimum": 3}, "3", "2"),
    "maximum": (INTEGER | {"maximum": 3}, "3", "4"),
    "exclusiveMinimum": (INTEGER | {"exclusiveMinimum": 3}, "4", "3"),
    "exclusiveMaximum": (INTEGER | {"exclusiveMaximum": 3}, "2", "3"),
    "minLength": ({"type": "string", "minLength": 2, "maxLength": 9}, '"ab"', '"a"'),
    "maxLength": ({"type": "string", "maxLength": 2}, '"ab"', '"abc"'),
    "pattern": ({"type": "string", "pattern": "^b{1,3}$"}, '"bb"', '"a"'),
    "format": ({"type": "string", "format": "date"}, '"2020-01-01"', '"2020-13-01"'),
    "minItems": (array(minItems=2), "[1, 1]", "[1]"),
    "maxItems": (array(maxItems=1), "[1]", "[1, 1]"),
    "items": (array(), "[1]", '["a"]'),
    "prefixItems": (array(prefixItems=[{"type": "boolean"}]), "[true, 1]", "[1, 1]"),
    "additionalItems": (array(items=[INTEGER], additionalItems=False), "[1]", "[1, 2]"),
    "properties": (thing(), '{"a": 1}', '{"a": "x"}'),
    "required": (thing(required=["a"]), '{"a": 1}', "{}"),
    "additionalProperties": (thing(additionalProperties={"type": "boolean"}), '{"c": true}', '{"c": 1}'),
    "patternProperties": ({"type": "object", "patternProperties": {"^a": INTEGER}}, '{"a": 1}', '{"a": "x"}'),
    "minProperties": ({"type": "object", "additionalProperties": INTEGER, "minProperties": 1}, '{"a": 1}', "{}"),
    "maxProperties": (
        {"type": "object", "additionalProperties": INTEGER, "maxProperties": 1},
        '{"a": 1}',
        '{"a": 1, "b": 1}',
    ),
    "allOf": ({"allOf": [INTEGER, {"minimum": 3}]}, "3", "2"),
    "anyOf": ({"anyOf": [INTEGER, {"type": "null"}]}, "3", "true"),
    "oneOf": ({"oneOf": [INTEGER, {"type": "null"}]}, "3", "true"),
    "$ref": ({"$ref": "#/$defs/a%20b", "$defs": {"a b": INTEGER}}, "1", '"a"'),
    "$defs": ({"$ref": "#/$defs/a", "$defs": {"a": INTEGER}}, "1", '"a"'),
    "definitions": ({"$ref": "#/definitions/a", "definitions": {"a": INTEGER}}, "1", '"a"'),
    "$anchor": ({"$ref": "#a", "$defs": {"x": {"$anchor": "a"} | INTEGER}}, "1", '"a"'),
    "exclusiveMinimum of draft 4": (INTEGER | {"minimum": 3, "exclusiveMinimum": True}, "4", "3"),
    "a list of items before draft 2020-12": (array(items=[{"type": "boolean"}]), "[true]", "[1]"),
    "$ref beside others": ({"$ref": "#/$defs/a", "$defs": {"a": INTEGER}, "minimum": 3}, "3", "2"),
}
REFUSED: dict[str, dict[str, Any]] = {
    "uniqueItems": array(uniqueItems=True),
    "contains": array(contains={"const": 5}),
    "minContains": array(minContains=2),
    "maxContains": array(maxContains=2),
    "unevaluatedItems": array(unevaluatedItems=False),
    "unevaluatedProperties": {"type": "object", "unevaluatedProperties": False},
    "propertyNames": thing(propertyNames={"pattern": "^a$"}),
    "dependentRequired": thing(dependentRequired={"a": ["b"]}),
    "dependentSchemas": thing(dependentSchemas={"a": {"required": ["b"]}}),
    "dependencies": thing(dependencies={"a": ["b"]}),
    "not": {"not": {"type": "string"}},
    "if": INTEGER | {"if": {"minimum": 5}, "then": {"multipleOf": 2}},
    "then": INTEGER | {"then": {"multipleOf": 2}},
    "else": INTEGER | {"else": {"multipleOf": 2}},
    "$dynamicRef": {"$dynamicRef": "#a", "$defs": {"a": {"$anchor": "a"} | INTEGER}},
    "$dynamicAnchor": {"$dynamicAnchor": "a"} | INTEGER,
    "$recursiveRef": {"type": "array", "items": {"$recursiveRef": "#"}},
    "$recursiveAnchor": {"$recursiveAnchor": True} | INTEGER,
    "divisibleBy": INTEGER | {"divisibleBy": 7},
    "disallow": {"disallow": ["string"]},
    "extends": {"extends": INTEGER},
    "oneOf": {"oneOf": [INTEGER | {"minimum": 3}, INTEGER | {"maximum": 5}]},  # branches that overlap
    "required: true": thing(properties={"a": INTEGER | {"required": True}}),  # of draft 3
    "any": {"type": "any"},  # of draft 3
    "uri-reference": {"type": "string", "format": "uri-reference"},  # a format that is not enforced
    "int32": {"type": "string", "format": "int32"},
    "https://example.com/dialect": {"$schema": "https://example.com/dialect"} | INTEGER,
}
# What describes and demands nothing. Validators of all drafts may read the content keywords as annotations.
ANNOTATIONS: dict[str, Any] = {
    "$schema": DRAFTS[0],
    "$id": "https://example.com/a",
    "id": "https://example.com/a",
    "$comment": "a",
    "$vocabulary": {"https://example.com/v": True},
    "title": "a",
    "description": "a",
    "default": 1,
    "deprecated": True,
    "readOnly": True,
    "writeOnly": True,
    "examples": [1],
    "contentEncoding": "base64",
    "contentMediaType": "application/json",
    "contentSchema": {"type": "object"},
    "format": "int32",  # of a number: OpenAPI's word for how it is stored
    "minimun": 3,  # misspelt
}


def ask(served: Served, schema: dict[str, Any], **fields: Any) -> Answer:
    body = {"model": "tiny", "prompt": "A", "max_tokens": 2, "temperature": 1.3, "seed": 1, PARAM: schema}
    return served.request("POST", "/v1/completions", body | fields)


def test_the_tables_have_every_keyword_of_every_draft() -> None:
    known = {name for uri in REGISTRY for name in REGISTRY.contents(uri).get("properties", {})}
    assert len(known) > 60
    assert known - {*ENFORCED, *REFUSED, *ANNOTATIONS} == set()


@pytest.mark.parametrize("keyword", ENFORCED)
def test_an_enforced_keyword_holds_in_every_draft(served: Served, keyword: str) -> None:
    schema, allowed, forbidden = ENFORCED[keyword]
    choices = ask(served, schema, n=4, max_tokens=40).json()["choices"]
    for choice in choices:
        if choice["finish_reason"] == "stop":
            jsonschema.validate(json.loads(choice["text"]), schema, cls=validator_of(schema))
    for draft in DRAFTS:
        grammar = Grammar("json_schema", json.dumps({"$schema": draft} | schema))
        assert ask(served, {"$schema": draft} | schema).status == 200
        assert (allows(grammar, allowed), allows(grammar, forbidden)) == (True, False), draft


def validator_of(schema: dict[str, Any]) -> Any:
    """The newest draft whose form of the keywords the schema has."""
    if isinstance(schema.get("exclusiveMinimum"), bool):
        return jsonschema.Draft4Validator
    return jsonschema.Draft7Validator if isinstance(schema.get("items"), list) else jsonschema.Draft202012Validator


@pytest.mark.parametrize("keyword", REFUSED)
def test_any_other_keyword_is_a_400_that_names_it_in_every_draft(served: Served, keyword: str) -> None:
    for draft in DRAFTS:
        schema = {"$schema": draft} | REFUSED[keyword]
        within = {"$ref": "#/x/y", "x": {"y": schema}}  # reached by a reference alone
        for given in (schema, {"type": "array", "items": schema}, within):
            answer = ask(served, given)
            assert (answer.status, answer.error["param"]) == (400, PARAM), draft
            assert keyword in answer.error["message"], draft


@pytest.mark.parametrize("keyword", ANNOTATIONS)
def test_an_annotation_and_an_unknown_keyword_demand_nothing(served: Served, keyword: str) -> None:
    schema = INTEGER | {keyword: ANNOTATIONS[keyword]}
    assert ask(served, schema).status == 200
    assert allows(Grammar("json_schema", json.dumps(schema)), "-7")
    named = {"type": "object", "properties": dict.fromkeys(("divisibleBy", "extends", "required"), INTEGER)}
    assert ask(served, named).status == 200  # names of properties are no keywords

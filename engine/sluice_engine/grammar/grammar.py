"""The grammar of an output as plain data, and the bounds that are checked before anything is compiled.

Standard library only: the scheduler and the simulator carry it too.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from sluice_engine.grammar.keywords import draft_3_keyword, schemas_in
from sluice_engine.grammar.recursion import ends

Kind = Literal["json_schema", "regex", "choice", "ebnf", "lark"]

MAX_CHARACTERS: Final = 65_536
MAX_REGEX_CHARACTERS: Final = 8_192
MAX_DEPTH: Final = 100  # of a JSON schema: objects and lists within each other
MAX_CHOICES: Final = 1_024
# One space, or a line break with indentation: a model that prefers whitespace could write it until the length limit.
WHITESPACE: Final = r" ?|\n {0,24}|\n\t{0,8}"
ANY_OBJECT: Final = '{"type":"object"}'


class GrammarInvalid(ValueError):
    """The grammar cannot be enforced. The message is one sentence with the cause."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an output must be. `text` is a JSON schema, a regular expression, a JSON list of strings, a client's grammar
    in GBNF or Lark notation, or a grammar in Lark notation of this engine's own making.
    """

    kind: Kind
    text: str


def check_bounds(grammar: Grammar) -> None:
    """Checks size, depth and references without compiling. Raises GrammarInvalid."""
    most = MAX_REGEX_CHARACTERS if grammar.kind == "regex" else MAX_CHARACTERS
    if len(grammar.text) > most:
        raise GrammarInvalid(f"it has {len(grammar.text)} characters; at most {most} are allowed")
    if not grammar.text.strip():
        raise GrammarInvalid("it must not be empty")
    if grammar.kind == "json_schema":
        schema = json.loads(grammar.text)
        check_schema(schema)
        if (keyword := draft_3_keyword(schema)) is not None:
            raise GrammarInvalid(f"it has draft 3's {keyword}")


def literals(grammar: Grammar) -> Iterator[str]:
    """Strings that outputs of the grammar may have to contain: of a choice, and values and names of a JSON schema."""
    if grammar.kind == "choice":
        yield from json.loads(grammar.text)
    if grammar.kind != "json_schema":
        return
    for _, node in _nodes(json.loads(grammar.text)):
        properties, values = node.get("properties"), node.get("enum")
        yield from properties if isinstance(properties, dict) else ()
        named = [*(values if isinstance(values, list) else ()), node.get("const")]
        yield from (each for each in named if isinstance(each, str))


def check_schema(schema: Any) -> None:
    """Checks the depth, the references and the recursion of a parsed JSON schema. Raises GrammarInvalid."""
    if any(depth > MAX_DEPTH for depth, _ in _nodes(schema)):
        raise GrammarInvalid(f"it is nested deeper than {MAX_DEPTH} levels")
    for node in schemas_in(schema):
        reference = node.get("$ref")
        if isinstance(reference, str) and not reference.startswith("#"):
            raise GrammarInvalid(
                f"$ref {reference[:80]!r} is outside the schema, and nothing is fetched; write #/$defs/…"
            )
    if not ends(schema):
        raise GrammarInvalid("it needs itself within itself, so that no output of it ends; make a part of it optional")


def _nodes(schema: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every object in the schema with its depth, without recursion: the depth is not bounded yet."""
    open_nodes: list[tuple[int, Any]] = [(0, schema)]
    while open_nodes:
        depth, node = open_nodes.pop()
        if isinstance(node, dict):
            yield depth, node
            open_nodes += [(depth + 1, entry) for entry in node.values()]
        elif isinstance(node, list):
            open_nodes += [(depth + 1, entry) for entry in node]

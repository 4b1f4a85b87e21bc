"""llguidance beside xgrammar: compile time, mask time, and what each does with keywords that it cannot enforce.

`python -m tests.bench.structured_output.libraries` prints both sides for a vocabulary of 128,000 tokens, in processor time. xgrammar
is no dependency of this project: `pip install xgrammar` first, into an environment of its own or with `--target`.
"""

import importlib
import json
import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final, Protocol

import llguidance
import llguidance.numpy
from llguidance import TokenizerWrapper

from sluice_engine.pulled import pull
from tests.bench.structured_output.first_use import large, rows

xgrammar: Any = importlib.import_module("xgrammar") if find_spec("xgrammar") else None
WIDTH: Final = 128_000
COMPILATIONS: Final = 5
LEAST_LETTERS: Final = 3
END: Final = b"<|end|>"
# keyword → a schema with it, and a document that it forbids
KEYWORDS: Final[Mapping[str, tuple[dict[str, Any], str]]] = {
    "uniqueItems": ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, "[1,1]"),
    "not": ({"type": "object", "properties": {"a": {"not": {"type": "string"}}}, "required": ["a"]}, '{"a":"b"}'),
    "contains": ({"type": "array", "items": {"type": "integer"}, "contains": {"const": 5}}, "[1]"),
    "if": ({"type": "integer", "if": {"minimum": 5}, "then": {"multipleOf": 2}}, "7"),
    "propertyNames": ({"type": "object", "propertyNames": {"pattern": "^a$"}}, '{"b":1}'),
    "dependentRequired": (
        {"type": "object", "properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}},
        '{"a":1}',
    ),
    "multipleOf": ({"type": "integer", "multipleOf": 7}, "5"),
    "an unknown format": ({"type": "string", "format": "klingon"}, '"x"'),
    "a remote $ref": ({"$ref": "https://example.com/schema"}, "1"),
    "look-around": ({"type": "string", "pattern": "^(?=a)b$"}, '"b"'),
}


class Refused(Exception):
    """The library does not compile the schema."""


class Matcher(Protocol):
    """One output of a compiled schema."""

    def fill(self) -> None:
        """Compute the mask of the next token."""

    def accept(self, token: int) -> bool:
        """Add a token. Returns False if it is not allowed."""

    def ends(self) -> bool:
        """Whether the output may end here."""


class Library(Protocol):
    """A library with this vocabulary."""

    def matcher(self, schema: Mapping[str, Any]) -> Matcher:
        """Compile the schema. Raises Refused."""


class Vocabulary:
    """SmolLM2's tokens and pairs of them, `WIDTH` in all, as llguidance reads them."""

    bos_token_id = None

    def __init__(self) -> None:
        source = (pull("smollm2") / "tokenizer.json").read_text()
        small = llguidance.LLTokenizer(source)
        found = [small.decode_bytes([token]) for token in range(small.vocab_size) if not small.is_special_token(token)]
        known, words = set(found), [each for each in found if each.isalpha() and len(each) >= LEAST_LETTERS]
        dice = random.Random(0)
        while len(known) < WIDTH - 1:
            known.add(dice.choice(words) + dice.choice(words))
        self.tokens = [*sorted(known), END]
        self.eos_token_id = WIDTH - 1
        self.special_token_ids = [self.eos_token_id]
        self._ids = {token: place for place, token in enumerate(self.tokens[:-1])}
        self._longest = max(map(len, self.tokens))

    def __call__(self, text: bytes) -> list[int]:
        """The longest token at each place."""
        found, place = list[int](), 0
        while place < len(text):
            end = next(end for end in range(place + self._longest, place, -1) if text[place:end] in self._ids)
            found.append(self._ids[text[place:end]])
            place = end
        return found


class Llguidance:
    """As the engine uses it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tokenizer = llguidance.LLTokenizer(TokenizerWrapper(vocabulary), n_vocab=WIDTH)

    def matcher(self, schema: Mapping[str, Any]) -> "LlguidanceMatcher":
        """Compile the schema. Raises Refused."""
        source = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
        return LlguidanceMatcher(llguidance.LLMatcher(self._tokenizer, source, log_level=0))


class LlguidanceMatcher:
    """One output."""

    def __init__(self, matcher: llguidance.LLMatcher) -> None:
        if matcher.is_error():
            raise Refused(matcher.get_error())
        self._matcher = matcher
        self._mask = llguidance.numpy.allocate_token_bitmask(1, WIDTH)

    def fill(self) -> None:
        """Compute the mask of the next token."""
        llguidance.numpy.fill_next_token_bitmask(self._matcher, self._mask)

    def accept(self, token: int) -> bool:
        """Add a token. Returns False if it is not allowed."""
        return self._matcher.try_consume_tokens([token]) == 1

    def ends(self) -> bool:
        """Whether the output may end here."""
        return self._matcher.is_accepting()


class Xgrammar:
    """As vLLM uses it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        info = xgrammar.TokenizerInfo(
            vocabulary.tokens, xgrammar.VocabType.RAW, vocab_size=WIDTH, stop_token_ids=[vocabulary.eos_token_id]
        )
        self._compiler = xgrammar.GrammarCompiler(info, cache_enabled=False)

    def matcher(self, schema: Mapping[str, Any]) -> "XgrammarMatcher":
        """Compile the schema. Raises Refused."""
        try:
            return XgrammarMatcher(self._compiler.compile_json_schema(json.dumps(schema)))
        except (RuntimeError, ValueError) as error:
            raise Refused(str(error)) from error


class XgrammarMatcher:
    """One output."""

    def __init__(self, compiled: Any) -> None:
        self._matcher = xgrammar.GrammarMatcher(compiled, terminate_without_stop_token=True)
        self._mask = xgrammar.allocate_token_bitmask(1, WIDTH)

    def fill(self) -> None:
        """Compute the mask of the next token."""
        self._matcher.fill_next_token_bitmask(self._mask)

    def accept(self, token: int) -> bool:
        """Add a token. Returns False if it is not allowed."""
        return bool(self._matcher.accept_token(token))

    def ends(self) -> bool:
        """Whether the output may end here."""
        return bool(self._matcher.is_terminated())


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds of processor time: the median of the compilations, and each mask in ascending order."""

    compile: float
    masks: Sequence[float]

    def __str__(self) -> str:
        return (
            f"compile {self.compile:.1f} ms, mask mean {statistics.mean(self.masks):.3f}, "
            f"p99 {self.masks[int(0.99 * len(self.masks))]:.2f}, max {self.masks[-1]:.2f} ms"
        )


def main() -> int:
    """Returns 1 without xgrammar."""
    if xgrammar is None:
        sys.stderr.write(
            "xgrammar is not installed: pip install --target FOLDER xgrammar, and add FOLDER to PYTHONPATH\n"
        )
        return 1
    vocabulary = Vocabulary()
    libraries: dict[str, Library] = {"llguidance": Llguidance(vocabulary), "xgrammar": Xgrammar(vocabulary)}
    for name, (schema, document) in documents().items():
        tokens = vocabulary(document.encode())
        sys.stdout.write(f"{name}, {len(json.dumps(schema)) / 1000:.1f} kB, {len(tokens)} tokens\n")
        for library, each in libraries.items():
            sys.stdout.write(f"  {library:<12} {times(each, schema, tokens)}\n")
    sys.stdout.write("keywords that a library may not enforce\n")
    for keyword, (schema, forbidden) in KEYWORDS.items():
        tokens = vocabulary(forbidden.encode())
        found = ", ".join(f"{library} {verdict(each, schema, tokens)}" for library, each in libraries.items())
        sys.stdout.write(f"  {keyword:<18} {found}\n")
    return 0


def documents() -> dict[str, tuple[dict[str, Any], str]]:
    """Schemas by name, each with an output of it."""
    small, schema = {"type": "array", "items": rows()["items"]}, large(0)
    field = {"kind": "c", "value": -12.5, "note": "twenty letters and no more"}
    row = {"sku": "AB-1234 blue", "quantity": 17}
    return {
        "a small schema": (small, json.dumps([row] * 200)),
        "a large schema": (schema, json.dumps(dict.fromkeys(schema["properties"], field))),
    }


def times(library: Library, schema: Mapping[str, Any], tokens: Sequence[int]) -> Times:
    """Compile the schema several times, then compute the mask before each token of the document."""
    compiling, masks = [], []
    for _ in range(COMPILATIONS):
        begun = time.process_time()
        matcher = library.matcher(schema)
        compiling.append(1000 * (time.process_time() - begun))
    for token in tokens:
        begun = time.process_time()
        matcher.fill()
        masks.append(1000 * (time.process_time() - begun))
        if not matcher.accept(token):
            raise RuntimeError(f"token {token} of the document is not allowed")
    return Times(statistics.median(compiling), sorted(masks))


def verdict(library: Library, schema: Mapping[str, Any], forbidden: Sequence[int]) -> str:
    """Whether the library refuses the schema, enforces it, or allows what it forbids."""
    try:
        matcher = library.matcher(schema)
    except Refused:
        return "refuses"
    return "drops" if all(map(matcher.accept, forbidden)) and matcher.ends() else "enforces"


if __name__ == "__main__":
    sys.exit(main())

"""Compiles grammars with llguidance, which parses lazily: the 19 kB schema of the bench takes 6 ms, not a second.

llguidance refuses what it cannot enforce, by name, where others drop it in silence (`engine/LOG.md`).
"""

import json
import re
from collections import OrderedDict
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, Final

import llguidance
from llguidance.gbnf_to_lark import any_to_lark

from sluice_engine.grammar.closing import closed
from sluice_engine.grammar.grammar import WHITESPACE, Grammar, GrammarInvalid
from sluice_engine.grammar.keywords import without_neutral

KEPT: Final = 64  # compiled grammars
JSON_OPTIONS: Final[Any] = {"whitespace_pattern": WHITESPACE, "lenient": False}
ASCII_CLASSES: Final = {r"\d": "[0-9]", r"\w": "[0-9A-Za-z_]"}
_REGEX_TOKEN: Final = re.compile(r"\\.|\[\^?\]?|.", re.DOTALL)  # an escape, the start of a class, a character
LIMITS: Final[dict[str, Any]] = {
    "initial_lexer_fuel": 1_000_000,  # about 20 ms
    "step_lexer_fuel": 200_000,
    "step_max_items": 50_000,
    "max_lexer_states": 50_000,  # 1 to 2 kB each
    "max_grammar_size": 200_000,
    "verbose_errors": False,
}


class GrammarCompiler:
    """Makes matchers for one model's vocabulary. Its methods may be called from one thread at a time."""

    def __init__(self, folder: Path, width: int, eos_ids: Collection[int]) -> None:
        """Read the tokenizer of the model's folder in a thread, at once. `width`: entries of a row of logits."""
        with ThreadPoolExecutor(1, thread_name_prefix="vocabulary") as pool:
            self._vocabulary = pool.submit(_vocabulary, folder, width, sorted(eos_ids))
            pool.shutdown(wait=False)
        self.eos_ids = sorted(eos_ids)
        self._compiled: OrderedDict[Grammar, Any] = OrderedDict()

    def matcher(self, grammar: Grammar) -> Any:
        """Return a new `llguidance.LLMatcher` at the grammar's start. Raises GrammarInvalid."""
        compiled = self._compiled.pop(grammar, None) or self._compile(grammar)
        self._compiled[grammar] = compiled
        if len(self._compiled) > KEPT:
            self._compiled.popitem(last=False)
        return compiled.deep_copy()

    def _compile(self, grammar: Grammar) -> Any:
        limits = llguidance.LLParserLimits(**LIMITS)
        matcher = llguidance.LLMatcher(self._vocabulary.result(), source_of(grammar), log_level=0, limits=limits)
        if matcher.is_error():
            raise GrammarInvalid(reason_of(matcher.get_error()))
        return matcher


def check(grammar: Grammar) -> None:
    """Compile the grammar on trial, for a vocabulary of bytes, up to the first mask. Raises GrammarInvalid."""
    if (
        grammar.kind == "json_schema" and '"oneOf"' in grammar.text
    ):  # closed branches may hide that it cannot be enforced
        _check(_schema_source(grammar.text))
    _check(source_of(grammar))


def _check(source: str) -> None:
    limits = llguidance.LLParserLimits(**LIMITS)
    matcher = llguidance.LLMatcher(_bytes(), source, log_level=0, limits=limits)
    if not matcher.is_error():
        matcher.compute_bitmask()
    if matcher.is_error():
        reason = reason_of(matcher.get_error())
        raise GrammarInvalid("it allows no output at all" if reason.startswith("NoExtension") else reason)


def source_of(grammar: Grammar) -> str:
    """The grammar in llguidance's own notation. Raises GrammarInvalid."""
    match grammar.kind:
        case "json_schema":
            return _schema_source(json.dumps(closed(json.loads(grammar.text))))
        case "regex":
            return llguidance.LLMatcher.grammar_from_regex(ascii_classes(grammar.text))
        case "choice":
            return llguidance.LLMatcher.grammar_from_regex("|".join(map(_literally, json.loads(grammar.text))))
        case "lark":
            return llguidance.LLMatcher.grammar_from_lark(grammar.text)
        case "ebnf":
            try:
                return llguidance.LLMatcher.grammar_from_lark(any_to_lark(grammar.text))
            except Exception as error:  # the converter raises what its parser raises
                raise GrammarInvalid(reason_of(str(error))) from error


def reason_of(text: str) -> str:
    """The line of a library's error that says why, without what it quotes at length."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it cannot be compiled"]
    line = next((line for line in lines if line.startswith("error: ")), lines[0])
    return re.sub(r'"[^"]{60,}("|$)', '"…"', line.removeprefix("error: ")).rstrip(".:")[:300]


def _literally(text: str) -> str:
    """A regular expression that matches the text alone."""
    return "".join(each if each.isascii() and each.isalnum() else f"\\x{{{ord(each):x}}}" for each in text)


def ascii_classes(pattern: str) -> str:
    r"""Returns the pattern with \d and \w for ASCII alone, as in a JSON schema: elsewhere, digits are those of all scripts.

    In a negated class they stay as they are, so that what matches does so by either reading.
    """
    negated: list[bool] = []  # of each open class

    def replaced(found: re.Match[str]) -> str:
        token = found.group()
        if token.startswith("["):
            negated.append("^" in token)
        elif token == "]" and negated:
            negated.pop()
        elif not any(negated):
            return ASCII_CLASSES.get(token, token)
        return token

    return _REGEX_TOKEN.sub(replaced, pattern)


def _schema_source(schema: str) -> str:
    # Overrides: a schema's own "x-guidance" must not make the compiler lenient.
    return llguidance.LLMatcher.grammar_from_json_schema(_as_object(json.loads(schema)), overrides=JSON_OPTIONS)


def _as_object(schema: Any) -> str:
    """`true` and `false` are schemas too, which llguidance takes inside an object only."""
    return json.dumps(without_neutral(schema) if isinstance(schema, dict) else {"allOf": [schema]})


@cache
def _bytes() -> Any:
    return llguidance.LLTokenizer("byte")


def _vocabulary(folder: Path, width: int, eos_ids: list[int]) -> Any:
    source = (folder / "tokenizer.json").read_text(encoding="utf-8")
    return llguidance.LLTokenizer(source, n_vocab=width, eos_token=eos_ids)

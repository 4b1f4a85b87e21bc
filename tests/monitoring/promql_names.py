"""The names and labels in a PromQL expression, by a tokenizer: what a dashboard or rule asks of the metrics that exist."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r'\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<number>[0-9][0-9.]*(?:[smhd]\b)?)|(?P<variable>\$\w+)|(?P<name>[a-zA-Z_:][\w:]*)'
    r"|(?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^(){}\[\],<>=]))"
)
_WORDS = {"and", "or", "unless", "bool", "group_left", "group_right", "on", "ignoring", "by", "without", "offset"}


@dataclass(frozen=True)
class Selector:
    """One selector of series: its metric and its matchers as (label, operator, value)."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...] = ()


@dataclass
class Names:
    """All selectors and grouping labels of an expression."""

    selectors: list[Selector] = field(default_factory=list)
    groupings: set[str] = field(default_factory=set)


def names_in(expression: str) -> Names:
    """Return the names of an expression. Raises ValueError for text that is no PromQL token."""
    tokens = list(_tokens(expression))
    found, at = Names(), 0
    while at < len(tokens):
        kind, text = tokens[at]
        following = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        if kind != "name":
            at += 1
        elif text in ("by", "without", "on", "ignoring", "group_left", "group_right") and following == "(":
            end = _closing(tokens, at + 1, ")")
            found.groupings |= {name for each, name in tokens[at + 2 : end] if each == "name"}
            at = end + 1
        elif text in _WORDS or following == "(" or (following in ("by", "without")):
            at += 1
        elif following == "{":
            end = _closing(tokens, at + 1, "}")
            found.selectors.append(Selector(text, tuple(_matchers(tokens[at + 2 : end]))))
            at = end + 1
        else:
            found.selectors.append(Selector(text))
            at += 1
    return found


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    at = 0
    text = expression.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise ValueError(f"no PromQL at {text[at : at + 20]!r}")
        yield match.lastgroup, match[match.lastgroup]
        at = match.end()


def _closing(tokens: list[tuple[str, str]], start: int, sign: str) -> int:
    return next(index for index in range(start, len(tokens)) if tokens[index] == ("sign", sign))


def _matchers(tokens: list[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    for index in range(0, len(tokens), 4):
        (_, label), (_, operator), (_, value) = tokens[index : index + 3]
        yield label, operator, value.strip('"')

"""Parser of the Prometheus text format in linear time and within bounds.

An engine's answer is external input, since a tenant may choose the image. Each bound is at least five times the size
that an engine publishes (given in its comment). A text that exceeds a bound is rejected as a whole.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

MAX_BYTES: Final = 256 * 1024  # an engine: 16 KiB. Bounds the operator's memory, times the calls in flight
MAX_LINES: Final = 4_000  # an engine: 320
MAX_LINE_CHARACTERS: Final = 4_096  # an engine: 120. A regular expression holds the GIL for a whole line
MAX_LABELS: Final = 32  # per line; an engine: at most 4
MAX_SERIES: Final = 1_000  # with one of the prefixes; an engine: 99

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*+")
_SPACE: Final = re.compile(r"[ \t]*+")
# Possessive quantifiers do not backtrack, so a match is linear in the line's length.
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+"((?:[^"\\]|\\.)*+)"[ \t]*+')
_ESCAPED: Final = re.compile(r'\\[\\n"]')
_PLAIN: Final = {"\\\\": "\\", "\\n": "\n", '\\"': '"'}

Labels = tuple[tuple[str, str], ...]


class BadExposition(ValueError):
    """The text is not a valid sample of an engine. The message names the metric or line and the fault."""


class TooLarge(BadExposition):
    """The text exceeds a bound. The message names the bound."""


class Sample(NamedTuple):
    """One line of the text; `labels` are sorted by name."""

    name: str
    labels: Labels
    value: float


def read_samples(text: str, prefixes: tuple[str, ...]) -> Iterator[Sample]:
    """Yield the samples whose name starts with one of `prefixes`, in the order of the text, in O(len(text)).

    Other lines only count towards the bounds. Raises BadExposition for a malformed line among the selected ones,
    TooLarge for a text that exceeds a bound.
    """
    if len(text) > MAX_BYTES:
        raise TooLarge(f"{len(text)} characters: at most {MAX_BYTES} are read")
    lines = text.count("\n") + 1
    if lines > MAX_LINES:
        raise TooLarge(f"{lines} lines: at most {MAX_LINES} are read")
    series = 0
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > MAX_LINE_CHARACTERS:
            raise TooLarge(f"line {number} has {len(line)} characters: at most {MAX_LINE_CHARACTERS} are read")
        if not line.startswith(prefixes):
            continue
        series += 1
        if series > MAX_SERIES:
            raise TooLarge(f"more than {MAX_SERIES} series of an engine: no more are read")
        yield _read_line(line, number)


def _read_line(line: str, number: int) -> Sample:
    name = _NAME.match(line)
    if name is None:
        raise _malformed(line, number)
    at = _after_space(line, name.end())
    labels: Labels = ()
    if line.startswith("{", at):
        labels, at = _read_labels(line, at + 1, number)
    fields = line[at:].split()
    if not 1 <= len(fields) <= 2:  # a value and an optional timestamp, which is not used
        raise _malformed(line, number)
    values = [_number(field) for field in fields]
    if values[0] is None or values[-1] is None or at == name.end():
        raise _malformed(line, number)
    return Sample(name.group(), labels, values[0])


def _read_labels(line: str, at: int, number: int) -> tuple[Labels, int]:
    """Parse labels from the index after the opening brace; also return the index after the closing one."""
    found: dict[str, str] = {}
    at = _after_space(line, at)
    while not line.startswith("}", at):
        label = _LABEL.match(line, at)
        if label is None or label[1] in found:
            raise _malformed(line, number)
        if len(found) == MAX_LABELS:
            raise TooLarge(f"line {number} has more than {MAX_LABELS} labels: no more are read")
        found[label[1]] = _ESCAPED.sub(lambda escape: _PLAIN[escape.group()], label[2])
        at = label.end()
        if line.startswith(",", at):
            at = _after_space(line, at + 1)
        elif not line.startswith("}", at):
            raise _malformed(line, number)
    return tuple(sorted(found.items())), at + 1


def _after_space(line: str, at: int) -> int:
    space = _SPACE.match(line, at)
    return at if space is None else space.end()


def _number(field: str) -> float | None:
    try:
        return None if "_" in field else float(field)
    except ValueError:
        return None


def _malformed(line: str, number: int) -> BadExposition:
    return BadExposition(f"line {number} is not in the Prometheus text format: {line[:80]!r}")

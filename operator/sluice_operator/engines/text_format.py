"""Parser of the Prometheus text format in linear time and within bounds.

An engine's answer is external input, since a tenant may choose the image. Each bound is at least five times the size
that an engine publishes (given in its comment). A text that exceeds a bound is rejected as a whole.
"""

import functools
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

MAX_BYTES: Final = 256 * 1024  # an engine: 16 KiB. Bounds the operator's memory, times the calls in flight
MAX_LINES: Final = 4_000  # an engine: 320
MAX_LINE_CHARACTERS: Final = 4_096  # an engine: 120. A regular expression holds the GIL for a whole line
MAX_LABELS: Final = 32  # per line; an engine: at most 4
KEPT_CHARACTERS: Final = 256  # of a series whose name and labels are kept; an engine: at most 120
MAX_SERIES: Final = 1_000  # with one of the prefixes; an engine: 99

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*+")
_SPACE: Final = re.compile(r"[ \t]++")
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
    selected = 0
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > MAX_LINE_CHARACTERS:
            raise TooLarge(f"line {number} has {len(line)} characters: at most {MAX_LINE_CHARACTERS} are read")
        if line.startswith(prefixes):
            selected += 1
            if selected > MAX_SERIES:
                raise TooLarge(f"more than {MAX_SERIES} series of an engine: no more are read")
            yield _read_line(line, number)


def _read_line(line: str, number: int) -> Sample:
    end = line.rfind("}") + 1  # neither a value nor a timestamp has a brace
    if not end:
        space = _SPACE.search(line)
        end = space.start() if space else 0
    try:
        name, labels = (_read_series if end <= KEPT_CHARACTERS else _read_series.__wrapped__)(line[:end])
        return Sample(name, labels, _read_value(line[end:]))
    except BadExposition as error:
        raise type(error)(f"line {number} {error}") from None


def _read_value(text: str) -> float:
    """The value before an optional timestamp, which is not used."""
    fields = text.split()
    if 1 <= len(fields) <= 2 and "_" not in text:  # float() would take 1_000
        try:
            value, *_ = map(float, fields)
            return value
        except ValueError:
            pass  # refused as any other text
    raise _malformed(text)


@functools.lru_cache(maxsize=4096)
def _read_series(series: str) -> tuple[str, Labels]:
    """The name and labels before a value. Kept, since an engine's series are the same in each scrape."""
    name = _NAME.match(series)
    if name is None:
        raise _malformed(series)
    at = _after_space(series, name.end())
    labels: Labels = ()
    if series.startswith("{", at):
        labels, at = _read_labels(series, at + 1)
    if at != len(series):
        raise _malformed(series)
    return name.group(), labels


def _read_labels(series: str, at: int) -> tuple[Labels, int]:
    """Parse labels from the index after the opening brace; also return the index after the closing one."""
    found: dict[str, str] = {}
    at = _after_space(series, at)
    while not series.startswith("}", at):
        label = _LABEL.match(series, at)
        if label is None or label[1] in found:
            raise _malformed(series)
        if len(found) == MAX_LABELS:
            raise TooLarge(f"has more than {MAX_LABELS} labels: no more are read")
        found[label[1]] = _ESCAPED.sub(lambda escape: _PLAIN[escape.group()], label[2])
        at = label.end()
        if series.startswith(",", at):
            at = _after_space(series, at + 1)
        elif not series.startswith("}", at):
            raise _malformed(series)
    return tuple(sorted(found.items())), at + 1


def _after_space(line: str, at: int) -> int:
    space = _SPACE.match(line, at)
    return space.end() if space else at


def _malformed(text: str) -> BadExposition:
    return BadExposition(f"is not in the Prometheus text format: {text[:80]!r}")

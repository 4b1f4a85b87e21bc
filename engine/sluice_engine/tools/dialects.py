"""The notations in which models write calls, and a parser for each: pieces of text in, text and calls out.

Whatever is no call of an offered function stays text; nothing of an answer is lost. The result does not depend on how
the text is cut into pieces.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol

from sluice_engine.tools.calls import ArgumentsDelta, CallBegun, CallReader, Event, TextDelta
from sluice_engine.tools.marked_calls import ARGS, FUNCTION, PARAMETER, ArgsReader, FunctionReader

Dialect = Literal["hermes", "llama", "mistral", "mistral_args", "qwen_coder", "list", "named"]
Schemas = Mapping[str, Mapping[str, Any]]  # of the parameters, by the name of the function
NO_SCHEMAS: Final[Schemas] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Notation:
    """Marks around calls. `opening` "" : an answer is calls or text from its first character on."""

    opening: str
    closing: str = ""
    between: str = ""  # characters that may stand around the calls of one opening
    is_list: bool = False
    begins: str = "{"  # of a call; "": it begins with the opening, which is written before each call


NOTATIONS: Final[dict[Dialect, Notation]] = {
    "hermes": Notation("<tool_call>", "</tool_call>"),
    "llama": Notation("<|python_tag|>", between=";"),
    "mistral": Notation("[TOOL_CALLS]", is_list=True),
    "mistral_args": Notation("[TOOL_CALLS]", begins=""),
    "qwen_coder": Notation("<tool_call>", "</tool_call>", begins=FUNCTION),
    "list": Notation("", is_list=True),
}
SPACE: Final = " \t\r\n"
MOST_BLANK: Final = 256  # characters of whitespace that are held back before a call


class Reader(Protocol):
    """Reads one call. `begun`: its function is known; `failed`: it is no call of a known function."""

    begun: bool
    done: bool
    failed: bool

    @property
    def text(self) -> str:
        """What it was fed, at least until it began."""

    def feed(self, character: str) -> list[Event]:
        """Take one character."""


class Parser(Protocol):
    """Turns the text of one answer into events."""

    def feed(self, text: str) -> list[Event]:
        """Take more text."""

    def finish(self) -> list[Event]:
        """The answer ended: what was held back is text."""


def dialect_of(template: str) -> Dialect | None:
    """The notation of a model, by its chat template; None for a template without tools."""
    return _recognised(template)[0]


def why_dialect(template: str) -> str:
    """A sentence for the log: which notation of calls is read, and what of the chat template says so."""
    dialect, why = _recognised(template)
    if dialect is None:
        return (
            "the chat template knows no tools: a request with tools gets a generic prompt, and calls are read as hermes"
        )
    return f"tool calls are read as {dialect}, because the chat template {why}"


def _recognised(template: str) -> tuple[Dialect | None, str]:
    if "tools" not in template and "tool_call" not in template:
        return None, ""
    if "[TOOL_CALLS]" in template:
        return ("mistral_args", f"has [TOOL_CALLS] and {ARGS}") if ARGS in template else ("mistral", "has [TOOL_CALLS]")
    if FUNCTION in template and PARAMETER in template:
        return "qwen_coder", f"has {FUNCTION} and {PARAMETER}"
    for mark in ("<|python_tag|>", "ipython"):
        if mark in template:
            return "llama", f"has {mark}"
    if NOTATIONS["hermes"].opening in template:
        return "hermes", f"has {NOTATIONS['hermes'].opening}"
    return "hermes", "has tools but no mark of a known notation, and most models write this one"


def parser_of(
    dialect: Dialect,
    names: frozenset[str],
    *,
    name: str = "",
    parallel: bool = True,
    schemas: Schemas = NO_SCHEMAS,
) -> Parser:
    """A parser for one answer. `names`: the offered functions; `name`: the one that must be called (dialect `named`);
    `schemas` tell which arguments are no text where a notation does not.
    """
    if dialect == "named":
        return _NamedParser(name)

    def reader(index: int) -> Reader:
        if dialect == "mistral_args":
            return ArgsReader(index, names)
        return FunctionReader(index, names, schemas) if dialect == "qwen_coder" else CallReader(index, names)

    return _CallParser(NOTATIONS[dialect], reader, bare=dialect in ("llama", "list"), parallel=parallel)


class _NamedParser:
    """The whole answer is the arguments of one call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._begun = False

    def feed(self, text: str) -> list[Event]:
        events: list[Event] = []
        if not self._begun:
            text = text.lstrip(SPACE)
            if text:
                self._begun = True
                events.append(CallBegun(0, self._name))
        return [*events, ArgumentsDelta(0, text)] if text else events

    def finish(self) -> list[Event]:
        return []


class _CallParser:
    """Text, then calls behind an opening mark. `bare`: an answer that begins with a brace is a call without a mark."""

    def __init__(self, notation: Notation, reader_of: Callable[[int], Reader], *, bare: bool, parallel: bool) -> None:
        self._notation = notation
        self._reader_of = reader_of
        self._bare = bare
        self._parallel = parallel
        self._count = 0
        self._held = ""  # text that may become a mark or a call
        self._reader: Reader | None = None
        self._in_calls = False
        self._begun = False  # the answer has text that is not whitespace
        self._blank = True  # so far only whitespace since its start or the last call

    def feed(self, text: str) -> list[Event]:
        events: list[Event] = []
        for character in text:
            events += self._take(character)
        return _joined(events)

    def finish(self) -> list[Event]:
        reader, held, self._held, self._reader = self._reader, self._held, "", None
        if reader is not None and not reader.begun:
            held += reader.text
        if self._in_calls and not held.strip(SPACE + self._notation.between + "[],"):
            return []
        if self._count and self._blank and not held.strip(SPACE):
            return []
        return [TextDelta(held)] if held else []

    def _take(self, character: str) -> list[Event]:
        if self._reader is not None:
            return self._in_call(self._reader, character)
        if self._in_calls:
            return self._between_calls(character)
        return self._in_text(character)

    def _in_text(self, character: str) -> list[Event]:
        self._held += character
        opening = self._notation.opening
        if opening and self._held.endswith(opening):
            before = self._held.removesuffix(opening)
            self._in_calls, self._held = True, opening
            text: list[Event] = [TextDelta(before)] if before.strip(SPACE) else []
            return text if self._notation.begins else text + self._open()
        if self._bare and not self._begun:
            start = self._held.lstrip(SPACE)
            if start == "{" and not self._notation.is_list:
                return self._open()
            if start == "[" and self._notation.is_list:
                self._in_calls = True
                return []
            if not start and len(self._held) <= MOST_BLANK:
                return []
        keep = _overlap(self._held, opening)
        out, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        if not out or (self._blank and len(out) <= MOST_BLANK and not out.strip(SPACE)):
            self._held = out + self._held
            return []
        return self._text(out)

    def _text(self, text: str) -> list[Event]:
        self._begun, self._blank = True, False
        return [TextDelta(text)]

    def _between_calls(self, character: str) -> list[Event]:
        self._held += character
        if self._held.endswith(self._notation.begins):
            return self._open()
        if character in SPACE + self._notation.between or (self._notation.is_list and character in "[],"):
            return []
        closing = self._notation.closing
        tail = self._held.lstrip(SPACE)
        if closing and self._count and closing.startswith(tail):
            if tail == closing:
                self._in_calls, self._held, self._blank = False, "", True
            return []
        if closing and tail.startswith(self._notation.opening):  # a second opening without a closing
            return []
        self._in_calls, out, self._held = False, self._held, ""
        return self._text(out)

    def _open(self) -> list[Event]:
        """A call begins, with what the notation says at the end of the held text."""
        begins = self._notation.begins
        self._in_calls, self._held = True, self._held.removesuffix(begins)
        reader = self._reader = self._reader_of(self._count)
        return [event for character in begins for event in self._in_call(reader, character)]

    def _in_call(self, reader: Reader, character: str) -> list[Event]:
        events = reader.feed(character)
        if not self._parallel and self._count:
            events = []  # a second call that the client does not want
        if reader.failed and not reader.begun:
            self._reader, self._in_calls, text = None, False, self._held + reader.text
            self._held = ""
            return self._text(text)
        if reader.begun and self._held:
            self._held = ""
        if reader.done:
            self._reader = None
            self._count += 1
            if not self._notation.begins:
                self._in_calls, self._blank = False, True
        return events


def _overlap(text: str, mark: str) -> int:
    """How many characters at the end of `text` may begin `mark`."""
    return next((n for n in range(min(len(text), len(mark) - 1), 0, -1) if mark.startswith(text[-n:])), 0)


def _joined(events: list[Event]) -> list[Event]:
    """Consecutive events of one kind as one."""
    joined: list[Event] = []
    for (kind, index), group in itertools.groupby(
        events, key=lambda event: (type(event), getattr(event, "index", None))
    ):
        if kind is CallBegun or (index is None and kind is not TextDelta):
            joined += group
            continue
        text = "".join(event.text for event in group if not isinstance(event, CallBegun))
        joined.append(TextDelta(text) if index is None else ArgumentsDelta(index, text))
    return joined

"""Reads one call, `{"name": …, "arguments": {…}}`, as its characters arrive: the arguments are passed on at once."""

import json
from dataclasses import dataclass
from typing import Final

ARGUMENTS: Final = ("arguments", "parameters")
SPACE: Final = " \t\r\n"


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text that belongs to no call."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """Call number `index` of this answer began."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """More characters of the JSON text of a call's arguments."""

    index: int
    text: str


Event = TextDelta | CallBegun | ArgumentsDelta


class CallReader:
    """A state machine over the characters of one JSON object; linear in their number."""

    def __init__(self, index: int, names: frozenset[str]) -> None:
        self._index = index
        self._names = names
        self._characters: list[str] = []
        self.begun = False
        self.done = False
        self.failed = False  # it is no call of a known function
        self._depth = 0
        self._string: str | None = None  # the characters of the open string at depth 1
        self._in_string = self._escaped = False
        self._key: str | None = None
        self._at_value = False  # after a colon at depth 1
        self._value: list[str] = []  # the characters of the value of `_key`, unless they are passed on
        self._first = ""  # its first character that is no space
        self._name = ""
        self._pending: list[str] = []  # arguments that arrived before the name
        self._has_arguments = False

    @property
    def text(self) -> str:
        """Everything that it was fed."""
        return "".join(self._characters)

    def feed(self, character: str) -> list[Event]:
        """Take one character. Returns what is now known of the call."""
        self._characters.append(character)
        if self._in_string:
            return self._inside_string(character)
        if self._depth == 0:
            if character == "{":
                self._depth = 1
            elif character not in SPACE:
                self.failed = True
            return []
        if character == '"':
            self._in_string = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
        if self._depth == 0 or (self._depth == 1 and character == "," and self._at_value):
            return self._end_value()
        if self._depth == 1 and character == ":" and not self._at_value:
            self._at_value, self._value, self._first = True, [], ""
            return []
        if not self._at_value:
            self._string = "" if character == '"' else self._string
            return []
        return self._extend_value(character)

    def _inside_string(self, character: str) -> list[Event]:
        if self._escaped:
            self._escaped = False
        elif character == "\\":
            self._escaped = True
        elif character == '"':
            self._in_string = False
            if not self._at_value:
                self._key = self._string
                return []
        if not self._at_value:
            self._string = (self._string or "") + character
            return []
        return self._extend_value(character)

    def _extend_value(self, character: str) -> list[Event]:
        if not self._first and character not in SPACE:
            self._first = character
        if self._key in ARGUMENTS and self._first == "{":
            self._has_arguments = True
            return self._arguments(character)
        self._value.append(character)
        return []

    def _end_value(self) -> list[Event]:
        """A member of the object, or the object itself, ended."""
        events: list[Event] = []
        value, self._at_value = "".join(self._value).strip(SPACE), False
        try:
            if self._key == "name" and value:
                self._name = str(json.loads(value))
            elif (
                self._key in ARGUMENTS and value
            ):  # no object: JSON text within a string, or what the client must judge
                self._has_arguments = True
                events += self._arguments(json.loads(value) if value.startswith('"') else value)
        except (ValueError, RecursionError):
            self.failed = True
        if self._name and not self.begun and not self.failed:
            events += self._begin()
        self._key, self._value, self._first = None, [], ""
        if self._depth == 0:
            self.done = True
            if self.begun and not self._has_arguments:
                events.append(ArgumentsDelta(self._index, "{}"))
            self.failed = self.failed or not self.begun
        return events

    def _begin(self) -> list[Event]:
        if self._name not in self._names:
            self.failed = True
            return []
        self.begun = True
        events: list[Event] = [CallBegun(self._index, self._name)]
        if self._pending:
            events.append(ArgumentsDelta(self._index, "".join(self._pending)))
        return events

    def _arguments(self, text: str) -> list[Event]:
        if self.begun:
            return [ArgumentsDelta(self._index, text)]
        self._pending.append(text)
        return []

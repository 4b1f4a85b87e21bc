"""Reads calls whose name stands outside JSON: Mistral's since version 11, and Qwen3-Coder's.

[TOOL_CALLS]get_time[ARGS]{"city": "Paris"}
<function=get_time><parameter=city>Paris</parameter></function>, with a line break after each mark and value
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from sluice_engine.tools.calls import SPACE, ArgumentsDelta, CallBegun, Event

ARGS: Final = "[ARGS]"
CALL_ID: Final = "[CALL_ID]"  # between the name and [ARGS] in some versions
MAX_HEAD: Final = 256  # characters before the arguments
FUNCTION: Final = "<function="
FUNCTION_END: Final = "</function>"
PARAMETER: Final = "<parameter="
PARAMETER_END: Final = "</parameter>"
LITERALS: Final = {"True": True, "False": False, "None": None}  # as Python spells them


class ArgsReader:
    """One call of the form `name[ARGS]{…}`; linear in its characters."""

    def __init__(self, index: int, names: frozenset[str]) -> None:
        self._index = index
        self._names = names
        self._head = ""  # until the arguments
        self._depth = 0
        self._in_string = self._escaped = False
        self.begun = self.done = self.failed = False

    @property
    def text(self) -> str:
        """What it was fed before the call began."""
        return self._head

    def feed(self, character: str) -> list[Event]:
        """Take one character. Returns what is now known of the call."""
        if self.begun:
            self._count(character)
            return [ArgumentsDelta(self._index, character)]
        self._head += character
        head, mark, rest = self._head.partition(ARGS)
        if not mark or not rest.strip(SPACE):
            self.failed = len(self._head) > MAX_HEAD
            return []
        name = head.partition(CALL_ID)[0].strip(SPACE)
        if character != "{" or name not in self._names:
            self.failed = True
            return []
        self.begun, self._depth = True, 1
        return [CallBegun(self._index, name), ArgumentsDelta(self._index, character)]

    def _count(self, character: str) -> None:
        if self._in_string:
            self._in_string = self._escaped or character != '"'
            self._escaped = character == "\\" and not self._escaped
        elif character == '"':
            self._in_string = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
            self.done = self._depth == 0


class FunctionReader:
    """One call of the form `<function=name>…</function>`; a parameter is passed on when it is complete.

    A value is text unless the function's schema says otherwise.
    """

    def __init__(self, index: int, names: frozenset[str], schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self._index = index
        self._names = names
        self._schemas = schemas
        self._properties: Mapping[str, Any] = {}
        self._held = ""  # since the last complete part
        self._parameters = 0
        self.begun = self.done = self.failed = False

    @property
    def text(self) -> str:
        """What it was fed before the call began."""
        return self._held

    def feed(self, character: str) -> list[Event]:
        """Take one character. Returns what is now known of the call."""
        self._held += character
        if not self.begun:
            return self._begin() if character == ">" else self._check_head()
        if character == ">" and self._held.endswith(PARAMETER_END):
            return self._parameter(self._held.removesuffix(PARAMETER_END))
        if character == ">" and self._held.endswith(FUNCTION_END):
            self.done = True
            open_parameter = self._parameter(self._held.removesuffix(FUNCTION_END))
            end = "}" if self._parameters else "{}"
            return [*open_parameter, ArgumentsDelta(self._index, end)]
        return []

    def _check_head(self) -> list[Event]:
        self.failed = len(self._held) > MAX_HEAD
        return []

    def _begin(self) -> list[Event]:
        name = self._held.removeprefix(FUNCTION).removesuffix(">")
        if name not in self._names:
            self.failed = True
            return []
        properties = self._schemas.get(name, {}).get("properties")
        self._properties = properties if isinstance(properties, Mapping) else {}
        self.begun, self._held = True, ""
        return [CallBegun(self._index, name)]

    def _parameter(self, text: str) -> list[Event]:
        self._held = ""
        _, mark, rest = text.partition(PARAMETER)
        name, end, value = rest.partition(">")
        if not mark or not end:
            return []
        value = value.removeprefix("\n").removesuffix("\n")
        written = f"{json.dumps(name, ensure_ascii=False)}: {self._as_json(name, value)}"
        self._parameters += 1
        return [ArgumentsDelta(self._index, ("{" if self._parameters == 1 else ", ") + written)]

    def _as_json(self, name: str, value: str) -> str:
        given = self._properties.get(name)
        kind = given.get("type") if isinstance(given, Mapping) else None
        if kind is None or kind == "string":
            return json.dumps(value, ensure_ascii=False)
        if value in LITERALS:
            return json.dumps(LITERALS[value])
        try:
            return json.dumps(json.loads(value), ensure_ascii=False)
        except (ValueError, RecursionError):
            return json.dumps(value, ensure_ascii=False)

"""Separates a model's reasoning, `<think>…</think>`, from its answer, as the text arrives; and names it for templates."""

import re
from typing import Final, NamedTuple

OPENING: Final = "<think>"
CLOSING: Final = "</think>"
SPACE: Final = " \t\r\n"
FIELDS: Final = ("reasoning", "reasoning_content")  # what chat templates and clients call it in an earlier answer


class Parts(NamedTuple):
    """New characters of the reasoning, and of the answer."""

    reasoning: str
    answer: str


def fields_read(template: str) -> tuple[str, ...]:
    """Returns those of FIELDS that a template reads of a message: `message.NAME`, `message['NAME']`, `message.get('NAME')`,
    `'NAME' in message`.
    """
    reads = r"(?:\.|[\[(]\s*['\"]){name}\b|['\"]{name}['\"]\s+in\b"
    return tuple(name for name in FIELDS if re.search(reads.format(name=name), template))


def split(text: str) -> Parts:
    """Returns the reasoning and the answer of a whole output, as chat templates do: the opening mark may be missing."""
    before, mark, answer = text.partition(CLOSING)
    return Parts(before.strip().removeprefix(OPENING).lstrip(), answer.lstrip(SPACE)) if mark else Parts("", text)


class ReasoningSplitter:
    """The state of one answer. `inside`: the prompt already opened the reasoning."""

    def __init__(self, *, inside: bool) -> None:
        self._state = "inside" if inside else "before"
        self._held = ""
        self._fresh = True  # no character of the current part was passed on yet

    @property
    def inside(self) -> bool:
        """Whether the text so far ends within the reasoning."""
        return self._state == "inside"

    def feed(self, text: str) -> Parts:
        """Take more text."""
        reasoning, answer = "", ""
        self._held += text
        if self._state == "before":
            start = self._held.lstrip(SPACE)
            if start.startswith(OPENING):
                self._state, self._held = "inside", start.removeprefix(OPENING)
            elif OPENING.startswith(start):
                return Parts("", "")
            else:
                self._state, self._fresh = "after", False
        if self._state == "inside":
            body, mark, rest = self._held.partition(CLOSING)
            if mark:
                reasoning, self._held = self._trimmed(body), rest
                self._state, self._fresh = "after", True
            else:
                keep = _overlap(body)
                reasoning, self._held = self._trimmed(body[: len(body) - keep]), body[len(body) - keep :]
        if self._state == "after":
            answer, self._held = self._trimmed(self._held), ""
        return Parts(reasoning, answer)

    def finish(self) -> Parts:
        """The text ended: what was held back belongs to the current part."""
        held, self._held = self._held, ""
        return Parts(held, "") if self._state == "inside" else Parts("", held)

    def _trimmed(self, text: str) -> str:
        """Without the line breaks between a mark and its text."""
        if self._fresh:
            text = text.lstrip(SPACE)
            self._fresh = not text
        return text


def _overlap(text: str) -> int:
    return next((n for n in range(min(len(text), len(CLOSING) - 1), 0, -1) if CLOSING.startswith(text[-n:])), 0)

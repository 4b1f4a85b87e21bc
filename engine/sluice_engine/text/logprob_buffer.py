"""Logprobs of tokens whose text is not emitted yet: each entry is emitted together with its text, never before it.

Text may be held back (an incomplete character, a possible stop string), and text after a stop string is never emitted.
The entries of such tokens are held back and dropped with it.
"""

from collections import deque
from dataclasses import dataclass

from sluice_engine.request import TokenLogprob


@dataclass(frozen=True, slots=True)
class Entry:
    """One token. Its text is characters [start, end) of the output; start equals end for an incomplete character."""

    token: int
    start: int
    end: int
    logprob: TokenLogprob | None  # None: the first token of a prompt

    def within(self, emitted: int) -> bool:
        """True if the entry may be emitted with the first `emitted` characters."""
        return self.end < emitted or self.start < self.end == emitted


class LogprobBuffer:
    """Entries of one sample whose text is not emitted yet."""

    def __init__(self) -> None:
        self._waiting: deque[Entry] = deque()
        self._decoded = 0

    def add(self, token: int, characters: int, logprob: TokenLogprob) -> None:
        """Add a token that completed `characters` characters."""
        start = self._decoded
        self._decoded += characters
        self._waiting.append(Entry(token, start, self._decoded, logprob))

    def take(self, emitted: int) -> list[Entry]:
        """Remove and return the entries whose text is within the first `emitted` characters. An entry without text is
        returned with the text after it, because it may be part of the next character.
        """
        taken: list[Entry] = []
        while self._waiting and self._waiting[0].within(emitted):
            taken.append(self._waiting.popleft())
        return taken

    def last(self, emitted: int, stopped: bool) -> list[Entry]:
        """The remaining entries at the end of the output; after a stop string only those that start before it."""
        taken = [entry for entry in self._waiting if not stopped or entry.start < emitted]
        self._waiting.clear()
        return taken

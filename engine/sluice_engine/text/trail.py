"""Logprobs of tokens whose text is not shown yet: each entry goes out together with its text and never before it.

Text may be held back (half a character, the beginning of a stop string), and what follows a stop string is never
shown; the tokens' entries wait and fall with it.
"""

from collections import deque
from dataclasses import dataclass

from sluice_engine.request import TokenLogprob


@dataclass(frozen=True, slots=True)
class Entry:
    """One token: its text is characters [start, end) of the answer; for half a character both are the same."""

    token: int
    start: int
    end: int
    logprob: TokenLogprob

    def within(self, shown: int) -> bool:
        """Whether it may leave with the first `shown` characters."""
        return self.end < shown or self.start < self.end == shown


class LogprobTrail:
    """Entries of one answer whose text is not shown yet."""

    def __init__(self) -> None:
        self._waiting: deque[Entry] = deque()
        self._decoded = 0

    def add(self, token: int, characters: int, logprob: TokenLogprob) -> None:
        """A token that completed so many characters."""
        start = self._decoded
        self._decoded += characters
        self._waiting.append(Entry(token, start, self._decoded, logprob))

    def take(self, shown: int) -> list[Entry]:
        """The entries whose text is among the first `shown` characters; one without text of its own leaves together
        with the text after it, of which it may be a part."""
        taken: list[Entry] = []
        while self._waiting and self._waiting[0].within(shown):
            taken.append(self._waiting.popleft())
        return taken

    def last(self, shown: int, stopped: bool) -> list[Entry]:
        """At the end: all that is left, or after a stop string what began before it."""
        taken = [entry for entry in self._waiting if not stopped or entry.start < shown]
        self._waiting.clear()
        return taken

"""Logprobs in OpenAI's shapes, each token shown together with its text and never before it.

Text may be held back (half a character, the beginning of a stop string), and what follows a stop string is never
shown; the tokens' entries wait and fall with it.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from sluice_engine.request import TokenLogprob


class Vocabulary(Protocol):
    """What spells a token."""

    def token_bytes(self, token: int) -> bytes:
        """The token's bytes."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One token: its text is characters [start, end) of the answer; for half a character both are the same."""

    token: int
    start: int
    end: int
    logprob: TokenLogprob


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
        """The entries whose text is among the first `shown` characters."""
        taken: list[Entry] = []
        while self._waiting and self._waiting[0].end <= shown:
            taken.append(self._waiting.popleft())
        return taken

    def last(self, shown: int, stopped: bool) -> list[Entry]:
        """At the end: all that is left, or after a stop string what began before it."""
        taken = [entry for entry in self._waiting if not stopped or entry.start < shown]
        self._waiting.clear()
        return taken


def chat_logprobs(entries: list[Entry], vocabulary: Vocabulary) -> dict[str, Any]:
    """`choices[].logprobs` of a chat."""
    content = []
    for entry in entries:
        shown = _token(vocabulary, entry.token, entry.logprob.logprob)
        shown["top_logprobs"] = [_token(vocabulary, token, value) for token, value in entry.logprob.top]
        content.append(shown)
    return {"content": content, "refusal": None}


def completion_logprobs(entries: list[Entry], vocabulary: Vocabulary) -> dict[str, Any]:
    """`choices[].logprobs` of a completion. The chosen token is among the top ones, one more where it was not."""
    tokens = [_spelled(vocabulary.token_bytes(entry.token)) for entry in entries]
    tops = []
    for entry, token in zip(entries, tokens, strict=True):
        top = {_spelled(vocabulary.token_bytes(other)): value for other, value in entry.logprob.top}
        tops.append(top | {token: entry.logprob.logprob})
    return {
        "tokens": tokens,
        "token_logprobs": [entry.logprob.logprob for entry in entries],
        "top_logprobs": tops,
        "text_offset": [entry.start for entry in entries],
    }


def _token(vocabulary: Vocabulary, token: int, logprob: float) -> dict[str, Any]:
    raw = vocabulary.token_bytes(token)
    return {"token": _spelled(raw), "logprob": logprob, "bytes": list(raw)}


def _spelled(raw: bytes) -> str:
    """The token's text; a part of a character as OpenAI spells it, `bytes:\\xf0\\x9f`."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)

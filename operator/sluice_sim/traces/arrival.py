"""The records of a trace: the arrival time and the lengths of each request."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

BLOCK_TOKENS: Final = 512  # tokens per prefix block of a trace (Mooncake's hash_ids)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request: seconds since the trace began, its lengths in tokens, and the prefix that it shares with others.

    `blocks` identify the prompt's leading blocks of BLOCK_TOKENS tokens: two requests with the same first k ids have
    the same first k blocks. Without ids the prompt shares no prefix. `priority` (−100..100) and `tenant` have the
    engine's meaning. `output` is hidden from the engine: it gets `max_tokens` and ends at the end-of-sequence token.
    """

    at: float
    prompt: int
    output: int
    blocks: tuple[int, ...] = ()
    priority: int = 0
    tenant: str = ""
    max_tokens: int | None = None  # requested by the client, `output` or more; None: up to the context length

    def most(self, context: int) -> int:
        """The maximum number of output tokens that an engine with a maximum length of `context` tokens expects."""
        return context - self.prompt if self.max_tokens is None else self.max_tokens

    def within(self, context: int) -> "Arrival | None":
        """The request as a server with a maximum length of `context` tokens serves it: `output` is cut to the context.

        None if the server rejects it: the prompt leaves no room for a token, or `max_tokens` exceeds the room."""
        room = context - self.prompt
        if room < 1 or self.most(context) > room:
            return None
        return self if self.output <= room else replace(self, output=room)


@dataclass(frozen=True, slots=True)
class Load:
    """The requests of a trace in order of time, and notes on what its reader added to the file."""

    arrivals: Iterable[Arrival]
    notes: tuple[str, ...] = ()


class BadTrace(ValueError):
    """The trace cannot be read. The message names the file, line and column, and the expected value."""

    def __init__(self, sentence: str, file: Path | None = None) -> None:
        super().__init__(sentence if file is None else f"{file}: {sentence}")
        self.file = file

    def of(self, file: Path) -> "BadTrace":
        """The same error with the name of this file, unless it already names one."""
        return self if self.file is not None else BadTrace(str(self), file)


def prompt_tokens(arrival: Arrival, number: int) -> list[int]:
    """Token ids [arrival.prompt] of request `number`. Prompts are equal exactly where the trace's blocks are equal."""
    if not arrival.blocks:
        return [-1 - number] * arrival.prompt
    first: list[int] = []
    for block in arrival.blocks:
        first += range(block * BLOCK_TOKENS, (block + 1) * BLOCK_TOKENS)
    return first[: arrival.prompt] + [-1 - number] * (arrival.prompt - len(first))


def prompt_identities(arrival: Arrival, number: int, block_size: int) -> list[bytes]:
    """Substitutes for the chained hashes of the full blocks of `prompt_tokens(arrival, number)`.

    They are equal exactly where the hashes are, and no token is read. Empty if `block_size` does not divide
    BLOCK_TOKENS: the engine then hashes the tokens."""
    if BLOCK_TOKENS % block_size:
        return []
    parts, named = BLOCK_TOKENS // block_size, min(arrival.prompt, len(arrival.blocks) * BLOCK_TOKENS) // block_size
    found: list[bytes] = []
    chain = arrival.tenant.encode()
    for block in arrival.blocks:
        chain = hashlib.sha256(chain + block.to_bytes(8, signed=True)).digest()
        found += [chain + part.to_bytes(2) for part in range(parts)]
    own = number.to_bytes(8, signed=True)
    return found[:named] + [own + place.to_bytes(4) for place in range(named, arrival.prompt // block_size)]

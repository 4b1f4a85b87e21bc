"""What a trace is made of: who asked when, for how much."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

BLOCK_TOKENS: Final = 512  # tokens per prefix block of a trace (Mooncake's hash_ids)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request: seconds since the trace began, its lengths in tokens, and what its prompt shares with others.

    `blocks` name the prompt's leading pieces of BLOCK_TOKENS tokens: two requests with the same first k names have the
    same first k pieces. Empty: the prompt is like no other. `priority` (−100..100) and `tenant` are the engine's own.
    `output` is the future: the engine is told `max_tokens` and learns the rest when the end token comes.
    """

    at: float
    prompt: int
    output: int
    blocks: tuple[int, ...] = ()
    priority: int = 0
    tenant: str = ""
    max_tokens: int | None = None  # that the client asks for, `output` or more; None: all that the context holds

    def most(self, context: int) -> int:
        """Tokens that the answer may have, by what an engine of that context knows."""
        return context - self.prompt if self.max_tokens is None else self.max_tokens

    def within(self, context: int) -> "Arrival | None":
        """What a server of that context makes of it: an answer that would go on ends where the context is full. None
        where it refuses: the prompt leaves no room for a token, or the client asks for more than there is room for."""
        room = context - self.prompt
        if room < 1 or self.most(context) > room:
            return None
        return self if self.output <= room else replace(self, output=room)


class BadTrace(ValueError):
    """The trace cannot be read. The message names the file, line and column, and what was expected."""

    def __init__(self, sentence: str, file: Path | None = None) -> None:
        super().__init__(sentence if file is None else f"{file}: {sentence}")
        self.file = file

    def of(self, file: Path) -> "BadTrace":
        """The same about this file, unless it already names one."""
        return self if self.file is not None else BadTrace(str(self), file)


def prompt_tokens(arrival: Arrival, number: int) -> list[int]:
    """Token ids of the prompt of request `number`: equal exactly where the trace says that content is equal."""
    if not arrival.blocks:
        return [-1 - number] * arrival.prompt
    first: list[int] = []
    for block in arrival.blocks:
        first += range(block * BLOCK_TOKENS, (block + 1) * BLOCK_TOKENS)
    return first[: arrival.prompt] + [-1 - number] * (arrival.prompt - len(first))


def prompt_identities(arrival: Arrival, number: int, block_size: int) -> list[bytes]:
    """What stands for the chained hashes of the full blocks of `prompt_tokens(arrival, number)`: equal exactly where
    those are, without a token being looked at. Empty where blocks are not whole parts of a trace's: then they are
    hashed."""
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

"""In which blocks of an engine the steps of a prompt lie.

An engine's blocks are of tokens, a prompt's steps are of bytes. The engine says how many tokens the whole prompt has, and a
step ends at the same share of the tokens as of the bytes. Where the text is even that is wrong by less than a block, and no
prompt has to be tokenised here.
"""

from typing import NamedTuple

from sluice_gateway.routing.values import Prompt


class StoredPrompt(NamedTuple):
    """What an engine says of a prompt: its length in tokens, and its leading full blocks of `block_tokens` tokens each."""

    tokens: int
    block_tokens: int
    blocks: tuple[int, ...]


class Tie(NamedTuple):
    """The last full block of a step, and the number of tokens up to the step's end."""

    block: int
    tokens: int


def step_ties(prompt: Prompt, stored: StoredPrompt) -> list[Tie | None]:
    """One entry per step of the prompt; None for a step that is not in the blocks.

    Step i ends after tokens · (i + 1) · step_tokens / prompt.tokens tokens. A part of a block at its end does not count; a
    step that is shorter than the first block goes with it.
    """
    found: list[Tie | None] = []
    per_step = stored.tokens * prompt.step_tokens / max(prompt.tokens, prompt.step_tokens)
    for number in range(1, len(prompt.steps) + 1):
        tokens = int(number * per_step + 1e-6)
        place = max(0, tokens // stored.block_tokens - 1)
        found.append(Tie(stored.blocks[place], tokens) if place < len(stored.blocks) else None)
    return found

"""What the sampler asks for the masks of grammars: the matchers of its own process, or those of rank 0."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import torch

from sluice_engine.grammar import Grammar
from sluice_engine.sampling.grammar_masks import MaskedRow, PackedMasks

Broadcast = Callable[[torch.Tensor], None]  # overwrites a tensor by that of rank 0. Raises RankFailed


class MaskSource(Protocol):
    """Masks of the slots' requests. All its calls come in the order of the steps."""

    def join(self, slot: int, grammar: Grammar, output: Sequence[int]) -> None:
        """Begin the grammar of the slot's request, which has this output."""

    def add(self, tokens: Iterable[tuple[int, int]]) -> None:
        """Add output tokens, as (slot, token) in order."""

    def begin(self, rows: Sequence[MaskedRow]) -> None:
        """Compute the masks of these rows from now on; `apply` takes them."""

    def apply(self, scores: torch.Tensor, rows: Sequence[MaskedRow]) -> dict[int, str]:
        """Set the scores [N, V] of tokens that are not allowed to −∞. Returns row → fault for failed grammars."""

    def packed(self, rows: Sequence[MaskedRow]) -> PackedMasks:
        """The masks of these rows as words. Waits for them."""

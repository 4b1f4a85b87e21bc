"""Grammar masks where several ranks share a model: rank 0 computes them, and the others sample by the same ones.

A grammar may fail on one rank alone, for want of memory or by a limit of its matcher. Then the ranks would sample different
tokens. So the verdict is that of rank 0: a row whose grammar failed there allows no token on any rank.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import Future

import numpy as np
import torch

from sluice_engine.grammar import Grammar
from sluice_engine.sampling.grammar_masks import GrammarMasks, MaskedRow, PackedMasks, masked_rows
from sluice_engine.sampling.mask_source import Broadcast
from sluice_engine.sampling.token_mask import token_mask, words_of


class SharedMasks:
    """See `MaskSource`. `own`: the matchers of rank 0; None on other ranks."""

    def __init__(self, own: GrammarMasks | None, width: int, broadcast: Broadcast) -> None:
        self._own, self._width, self._broadcast = own, width, broadcast
        self._ahead: Future[PackedMasks] | None = None

    def join(self, slot: int, grammar: Grammar, output: Sequence[int]) -> None:
        """See `MaskSource`."""
        if self._own is not None:
            self._own.join(slot, grammar, output)

    def add(self, tokens: Iterable[tuple[int, int]]) -> None:
        """See `MaskSource`."""
        if self._own is not None:
            self._own.add(tokens)

    def begin(self, rows: Sequence[MaskedRow]) -> None:
        """See `MaskSource`."""
        if self._own is not None:
            self._ahead = self._own.begin_packed(rows)

    def apply(self, scores: torch.Tensor, rows: Sequence[MaskedRow]) -> dict[int, str]:
        """See `MaskSource`. Other ranks than 0 report no faults. Raises RankFailed."""
        ahead, self._ahead = self._ahead, None
        masks = self.packed(rows) if ahead is None else ahead.result()
        words = torch.from_numpy(masks.words).to(scores.device)
        self._broadcast(words)
        for row, mask in zip(masks.rows, words.cpu().numpy(), strict=True):
            penalty = token_mask(mask, self._width).as_penalty(self._width)
            scores[row] += torch.from_numpy(penalty).to(scores.device)
        return masks.faults

    def packed(self, rows: Sequence[MaskedRow]) -> PackedMasks:
        """The masks of these rows; on other ranks than 0 words that rank 0 has yet to send."""
        if self._own is None:
            masked = masked_rows(rows)
            return PackedMasks(masked, np.zeros((len(masked), words_of(self._width)), dtype=np.int32))
        return self._own.packed(rows)

"""Bars words from an output: the token that would complete one of them gets the score −∞.

A word is a sequence of tokens. It is matched within the output, as vLLM does: a word that begins in the prompt may be
completed. The end of each output is rebuilt on every admission, so a preemption changes no output.
"""

from collections.abc import Mapping, Sequence

import torch

Word = tuple[int, ...]


class BadWords:
    """The barred words of each slot's request, and the end of its output as far as a word can reach."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._words: dict[int, tuple[Word, ...]] = {}
        self._ends: dict[int, list[int]] = {}

    def join(self, slot: int, words: Sequence[Word], output: Sequence[int]) -> None:
        """Set the words of the slot's request, which has this output. Words that cannot be sampled are dropped."""
        self._words[slot] = tuple(word for word in words if word and max(word) < self._width)
        self._ends[slot] = []
        for token in output[-self._reach(slot) :] if self._reach(slot) else ():
            self.add(slot, token)

    def add(self, slot: int, token: int) -> None:
        """Add an output token of the slot's request."""
        end = self._ends[slot]
        end.append(token)
        del end[: max(len(end) - self._reach(slot), 0)]

    def barred(self, slot: int, drafts: Sequence[int] = ()) -> set[int]:
        """The tokens that complete a word after the slot's output and these draft tokens."""
        before = [*self._ends[slot], *drafts]
        return {
            word[-1]
            for word in self._words[slot]
            if len(word) == 1 or tuple(before[len(before) - len(word) + 1 :]) == word[:-1]
        }

    def apply(
        self, scores: torch.Tensor, rows: Sequence[int], slots: Sequence[int], drafts: Mapping[int, Sequence[int]]
    ) -> None:
        """Edit rows of scores [N, V] in place. `rows[i]` belongs to the request in `slots[i]`; `drafts` holds the draft
        tokens before a row.
        """
        for row, slot in zip(rows, slots, strict=True):
            if tokens := self.barred(slot, drafts.get(row, ())):
                scores[row, torch.tensor(sorted(tokens), device=scores.device)] = -torch.inf

    def _reach(self, slot: int) -> int:
        return max((len(word) for word in self._words[slot]), default=1) - 1

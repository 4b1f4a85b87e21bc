"""Presence, frequency and repetition penalties over token counts that stay on the device, one row per slot.

The counts are rebuilt from the request's known tokens on every admission, and each step adds the token that it samples.
A preemption therefore changes no output.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray


class Penalties:
    """Token counts of each slot's request. The tensors are allocated for the first request that needs them.

    counts: int32 [slots, V], occurrences in the output; seen: bool [slots, V], true if the prompt or output has the
    token.
    """

    def __init__(self, slots: int, width: int, device: torch.device) -> None:
        self._shape = (slots, width)
        self._device = device
        self._counts: torch.Tensor | None = None
        self._seen: torch.Tensor | None = None
        self._known: dict[int, tuple[list[int], int]] = {}  # by slot: prompt and output, length of the prompt

    def share(self, counts: torch.Tensor, seen: torch.Tensor) -> None:
        """Use these tensors, at least [slots, V], in which decode steps on the device count too."""
        self._counts, self._seen = counts, seen

    def join(self, slot: int, known: Sequence[int], prompt_length: int) -> None:
        """Count the tokens of the slot's request: `known` is its prompt and output."""
        self._known[slot] = (list(known), prompt_length)
        self._count(slot)

    def recount(self, slots: Iterable[int]) -> None:
        """Count the tokens of these slots anew, without those that only a failed step has counted."""
        for slot in slots:
            self._count(slot)

    def note(self, slots: NDArray[np.int64], tokens: NDArray[np.int64]) -> None:
        """Note output tokens [R] that the device has counted."""
        for slot, token in zip(slots.tolist(), tokens.tolist(), strict=True):
            self._known[slot][0].append(token)

    def _count(self, slot: int) -> None:
        (known, prompt_length), (counts, seen) = self._known[slot], self._tensors()
        counts[slot].zero_()
        seen[slot].zero_()
        tokens = torch.tensor(known, dtype=torch.int64, device=self._device)
        seen[slot, tokens] = True
        output = tokens[prompt_length:]
        counts[slot].index_add_(0, output, torch.ones_like(output, dtype=counts.dtype))

    def add(self, slots: NDArray[np.int64], tokens: NDArray[np.int64]) -> None:
        """Add output tokens. Both arguments are [R]; a slot may occur several times."""
        self.note(slots, tokens)
        counts, seen = self._tensors()
        place = (torch.from_numpy(slots).to(self._device), torch.from_numpy(tokens).to(self._device))
        counts.index_put_(place, torch.ones_like(place[1], dtype=counts.dtype), accumulate=True)
        seen[place] = True

    def apply(
        self,
        scores: torch.Tensor,
        rows: torch.Tensor,
        slots: torch.Tensor,
        *,
        repetition: torch.Tensor,
        frequency: torch.Tensor,
        presence: torch.Tensor,
        preceding_drafts: tuple[torch.Tensor, torch.Tensor] | None = None,
    ) -> None:
        """Penalise rows of scores [N, V] in place. rows, slots: int64 [R]; the penalties are float32 [R].
        `preceding_drafts` count for a single row each, as (indices into `rows`, tokens), both int64 [P].

        Repetition as in CTRL (Keskar et al., 2019) over prompt and output: a positive score is divided by it, a
        negative one multiplied. Frequency and presence as in the OpenAI API, over the output alone: score − frequency ·
        count − presence · [count > 0]. Only seen tokens are modified.
        """
        counts, seen = self._tensors()
        here = seen[slots]
        if preceding_drafts is not None:
            here[preceding_drafts] = True
        of, tokens = torch.nonzero(here, as_tuple=True)
        values, counted = scores[rows[of], tokens], counts[slots[of], tokens]
        if preceding_drafts is not None:
            extra = torch.zeros_like(here, dtype=counts.dtype)
            extra.index_put_(
                preceding_drafts, torch.ones_like(preceding_drafts[1], dtype=counts.dtype), accumulate=True
            )
            counted = counted + extra[of, tokens]
        values = torch.where(values > 0, values / repetition[of], values * repetition[of])
        values -= frequency[of] * counted + presence[of] * (counted > 0)
        scores[rows[of], tokens] = values

    def _tensors(self) -> tuple[torch.Tensor, torch.Tensor]:
        if self._counts is None or self._seen is None:
            self._counts = torch.zeros(self._shape, dtype=torch.int32, device=self._device)
            self._seen = torch.zeros(self._shape, dtype=torch.bool, device=self._device)
        return self._counts, self._seen

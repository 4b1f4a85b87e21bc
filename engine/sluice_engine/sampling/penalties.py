"""Presence, frequency and repetition penalties over token counts that stay on the device, one row per slot.

The counts are rebuilt from the request's known tokens on every admission, and each step adds the token that it samples.
A preemption therefore changes no output.
"""

from collections.abc import Sequence

import torch


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

    def join(self, slot: int, known: Sequence[int], prompt_length: int) -> None:
        """Count the tokens of the slot's request: `known` is its prompt and output."""
        counts, seen = self._tensors()
        counts[slot].zero_()
        seen[slot].zero_()
        tokens = torch.tensor(known, dtype=torch.int64, device=self._device)
        seen[slot, tokens] = True
        counts[slot] += torch.bincount(tokens[prompt_length:], minlength=self._shape[1]).to(torch.int32)

    def add(self, slots: torch.Tensor, tokens: torch.Tensor) -> None:
        """Add output tokens. Both arguments are int64 [R]; a slot may occur several times."""
        counts, seen = self._tensors()
        counts.index_put_((slots, tokens), torch.ones_like(tokens, dtype=counts.dtype), accumulate=True)
        seen[slots, tokens] = True

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

"""One step's tensors: the flat tokens and, for each group of rows, where its keys and values lie.

Rows are grouped so that attention runs batched: all rows of one token in one group, prompt chunks in groups of like
length. A group pads to its own longest row only, and costs one gather and one attention per layer.
"""

from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(slots=True)
class RowGroup:
    """Rows that attend together. R rows of at most Q tokens over at most N blocks of cached context."""

    first: int  # where the group's tokens begin in the flat batch
    tokens: int  # how many flat tokens it has
    rows: int
    longest: int  # Q
    block_tables: torch.Tensor  # [R, N] int64, padded with the null block
    context_lens: torch.Tensor  # [R] int64, cached tokens after this step's write
    query_positions: torch.Tensor  # [R, Q] int64, -1 where padded
    padded_index: torch.Tensor | None  # [tokens] int64 into R*Q; None when nothing is padded
    masks: dict[tuple[int | None, torch.dtype], torch.Tensor] = field(default_factory=dict)  # by window; built once

    def mask(self, window: int | None, block_size: int, dtype: torch.dtype) -> torch.Tensor:
        """[R, 1, Q, N·block_size], 0 where a query may look and -inf where not: causal, inside the window."""
        cached = self.masks.get((window, dtype))
        if cached is None:
            positions = torch.arange(self.block_tables.shape[1] * block_size, device=self.query_positions.device)
            # A padded query looks at position 0, so that its softmax stays finite; its output is dropped.
            queries = self.query_positions.clamp(min=0)[:, :, None]
            seen = positions <= queries
            if window is not None:
                seen &= positions > queries - window
            cached = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, float("-inf"))
            cached = self.masks[(window, dtype)] = cached.unsqueeze(1)
        return cached


@dataclass(frozen=True, slots=True)
class Batch:
    """Inputs of one forward pass over T flat tokens in N rows. Block tables and slots are those of the first group of
    layers (`groups.py`); the `others` are the same but for these."""

    input_ids: torch.Tensor  # [1, T] int64
    position_ids: torch.Tensor  # [1, T] int64
    slot_mapping: torch.Tensor  # [T] int64: block · block_size + offset of each token's KV
    logits_index: torch.Tensor  # [N] int64: flat position of each row's last token
    groups: tuple[RowGroup, ...]
    native: dict[int, Any] = field(default_factory=dict)  # the compiled kernel's view of it, by query heads; built once
    others: tuple["Batch", ...] = ()

    def of(self, group: int) -> "Batch":
        """As the layers of this group see it."""
        return self.others[group - 1] if group else self

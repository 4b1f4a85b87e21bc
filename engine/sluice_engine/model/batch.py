"""The tensors of one step: the flat tokens and, for each group of rows, the location of its KV.

Rows are grouped so that attention runs batched: all single-token rows in one group, prompt chunks in groups of similar
length. A group pads only to its own longest row, and costs one gather and one attention per layer.
"""

from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(slots=True)
class RowGroup:
    """Rows that attend together: R rows of at most Q tokens over at most N blocks of cached context."""

    first: int  # index of the group's first token in the flat batch
    tokens: int  # number of flat tokens
    rows: int
    longest: int  # Q
    block_tables: torch.Tensor  # [R, N] int64, padded with the null block
    context_lens: torch.Tensor  # [R] int64, cached tokens after this step's write
    query_positions: torch.Tensor  # [R, Q] int64, -1 where padded
    padded_index: torch.Tensor | None  # [tokens] int64 into R*Q; None when nothing is padded
    masks: dict[tuple[int | None, torch.dtype], torch.Tensor] = field(default_factory=dict)  # by window, dtype
    table_blocks: int = 0  # at least so wide are the device's tables, so that their shape does not depend on the step
    native: Any = field(default=None, init=False)  # these tensors as a backend's kernels read them; built once

    def forget(self) -> None:
        """Drop what was computed from the tensors, which have new values."""
        self.masks.clear()
        self.native = None

    def mask(self, window: int | None, block_size: int, dtype: torch.dtype) -> torch.Tensor:
        """Causal and window mask [R, 1, Q, N·block_size]: 0 where a query attends, -inf elsewhere."""
        cached = self.masks.get((window, dtype))
        if cached is None:
            positions = torch.arange(self.block_tables.shape[1] * block_size, device=self.query_positions.device)
            # A padded query attends to position 0, so that its softmax is finite; its output is dropped.
            queries = self.query_positions.clamp(min=0)[:, :, None]
            seen = positions <= queries
            if window is not None:
                seen &= positions > queries - window
            cached = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, float("-inf"))
            cached = self.masks[(window, dtype)] = cached.unsqueeze(1)
        return cached


@dataclass(frozen=True, slots=True)
class Batch:
    """Inputs of one forward pass over T flat tokens in N rows. Block tables and slots are those of the first layer
    group (`layer_groups.py`); `others` holds the batches of the further groups, equal except for these.
    """

    input_ids: torch.Tensor  # [1, T] int64
    position_ids: torch.Tensor  # [1, T] int64
    slot_mapping: torch.Tensor  # [T] int64: block · block_size + offset of each token's KV
    logits_index: torch.Tensor  # [N] int64: flat position of each row's last token
    groups: tuple[RowGroup, ...]
    native: dict[int, Any] = field(default_factory=dict)  # structs for the compiled kernel, by query heads; built once
    others: tuple["Batch", ...] = ()

    def of(self, group: int) -> "Batch":
        """The batch for this layer group."""
        return self.others[group - 1] if group else self

"""The tensors of one step as the kernels read them: int32 tables, single tokens first, then ragged chunks."""

from dataclasses import dataclass
from typing import Final

import torch
from torch.nn.functional import pad

from sluice_engine.model.batch import Batch, RowGroup

# Triton compiles a kernel anew for an address or a stride that is no multiple of 16, and for another number of splits, which
# depends on the width. So no width here depends on the step.
_WIDTH: Final = 16


@dataclass(frozen=True, slots=True)
class Chunks:
    """S rows of several tokens each, after the single-token rows."""

    starts: torch.Tensor  # [S + 1] int32, begins with 0
    tables: tuple[torch.Tensor, ...]  # by layer group: [S, W] int32
    contexts: torch.Tensor  # [S] int32


@dataclass(frozen=True, slots=True)
class StepTensors:
    """T flat tokens, of which the first R are rows of one token. A padding row has slot −1 and context 0."""

    tokens: torch.Tensor  # [T] int64
    positions: torch.Tensor  # [T] int64
    slots: tuple[torch.Tensor, ...]  # by layer group: [T] int64
    tables: tuple[torch.Tensor, ...]  # by layer group: [R, W] int32
    contexts: torch.Tensor  # [R] int32
    logits_index: torch.Tensor | None  # [N] int64; None: all tokens
    chunks: Chunks | None = None


def step_tensors(batch: Batch) -> StepTensors:
    """The batch's tensors, on its device. Single-token rows come first in a batch."""
    batches = (batch, *batch.others)
    singles = sum(group.longest == 1 for group in batch.groups)
    rows = sum(group.rows for group in batch.groups[:singles])
    tables = tuple(_tables(each.groups) for each in batches)
    chunks = None
    if singles < len(batch.groups):
        starts = _starts(batch.groups[singles:])
        chunks = Chunks(starts, tuple(table[rows:] for table in tables), _contexts(batch.groups[singles:]))
    return StepTensors(
        tokens=batch.input_ids[0],
        positions=batch.position_ids[0],
        slots=tuple(each.slot_mapping for each in batches),
        tables=tuple(table[:rows] for table in tables),
        contexts=_contexts(batch.groups[:singles]) if rows else batch.input_ids.new_empty(0, dtype=torch.int32),
        logits_index=batch.logits_index,
        chunks=chunks,
    )


@dataclass(frozen=True, slots=True)
class GroupTensors:
    """One group's rows, for modules that attend group by group."""

    starts: torch.Tensor  # [R + 1] int32, begins with 0
    tables: torch.Tensor  # [R, W] int32
    contexts: torch.Tensor  # [R] int32


def group_tensors(group: RowGroup) -> GroupTensors:
    """The group's tensors, converted by the first layer of a step."""
    if group.native is None:
        groups = (group,)
        group.native = GroupTensors(_starts(groups), _tables(groups), _contexts(groups))
    native: GroupTensors = group.native
    return native


def _starts(groups: tuple[RowGroup, ...]) -> torch.Tensor:
    """Where each row's tokens begin, and the end of the last: [rows + 1] int32."""
    counts = torch.cat([(group.query_positions >= 0).sum(1) for group in groups])
    return pad(counts.cumsum(0), (1, 0)).to(torch.int32)


def _contexts(groups: tuple[RowGroup, ...]) -> torch.Tensor:
    """The contexts of these groups' rows, in a tensor of their own: [rows] int32."""
    return torch.cat([group.context_lens for group in groups]).to(torch.int32)


def table_width(blocks: int) -> int:
    """The width of the tables of steps whose rows have so many blocks at most."""
    return -(-blocks // _WIDTH) * _WIDTH


def _tables(groups: tuple[RowGroup, ...]) -> torch.Tensor:
    """The block tables of all rows, padded to the groups' `table_blocks` or more: [rows, W] int32."""
    width = table_width(max(max(group.table_blocks, group.block_tables.shape[1]) for group in groups))
    padded = [pad(group.block_tables, (0, width - group.block_tables.shape[1])) for group in groups]
    return torch.cat(padded).to(torch.int32)

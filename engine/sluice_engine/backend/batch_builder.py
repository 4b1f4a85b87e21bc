"""Converts a plan to a batch of tensors, without per-step allocation where numpy can avoid it.

One matrix holds the block tables, one row per slot; a plan carries only the new blocks. `gather` copies the part that a
step needs. The next plan can therefore be installed while the step still runs, and the rows can be batched again one by
one if the model fails on the whole batch.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from sluice_engine.backend.repeated_decode import RepeatedDecode
from sluice_engine.backend.step_inputs import GatheredRows, Ints, LogitsRows, StepInputs
from sluice_engine.model.batch import Batch, RowGroup
from sluice_engine.sampling.draft_verify import NO_TOKEN, Drafts
from sluice_engine.sampling.logprobs import PromptTargets
from sluice_engine.scheduler import PENDING, Row


class BatchBuilder:
    """Holds the block tables of `max_num_seqs` slots and converts plans to batches."""

    def __init__(
        self,
        *,
        max_num_seqs: int,
        max_model_length: int,
        block_size: int,
        null_block: int,
        device: torch.device,
        windows: Sequence[int | None] = (None,),
        two_in_flight: bool = False,
    ) -> None:
        """`two_in_flight`: no batch is read once the next but one is gathered, so that its memory may be written again."""
        self._block_size = block_size
        self._windows = windows  # by layer group
        self._device = device
        self._null_block = null_block
        self.table_blocks = 0  # of the groups of its batches
        width = -(-max_model_length // block_size) * len(windows)
        self._tables: Ints = np.full((max_num_seqs, width), null_block, dtype=np.int64)
        repeats = two_in_flight and device.type == "cpu" and not any(windows) and len(windows) == 1
        self._repeated = RepeatedDecode(self._tables, block_size, null_block) if repeats else None

    def install(self, rows: Sequence[Row]) -> None:
        """Write the rows' new blocks into the tables. Samples that share a row's prompt start from a copy of
        its table.
        """
        for row in rows:
            if row.new_blocks:
                end = row.first_block + len(row.new_blocks)
                self._tables[row.slot, row.first_block : end] = row.new_blocks
            for fork in row.forks:
                self._tables[fork.slot] = self._tables[row.slot]

    def gather(self, rows: Sequence[Row]) -> list[GatheredRows]:
        """The installed rows in groups of similar length, each with a copy of its part of the block tables."""
        repeated = None if self._repeated is None else self._repeated.gathered(rows)
        return [self._gathered(group) for group in _by_length(rows)] if repeated is None else [repeated]

    def forget(self) -> None:
        """After a plan whose rows were gathered in parts, or of which one could not be: write no batch again."""
        if self._repeated is not None:
            self._repeated.forget()

    def batch(self, gathered: Sequence[GatheredRows]) -> StepInputs:
        """The batch of these groups."""
        if len(gathered) == 1 and gathered[0].inputs is not None:
            return gathered[0].inputs
        flat = [row for group in gathered for row in group.rows]
        slots = np.concatenate([group.slots for group in gathered])
        starts = np.concatenate([group.starts for group in gathered])
        counts = np.concatenate([group.counts for group in gathered])
        ends = np.cumsum(counts)
        total = int(ends[-1])
        tokens = np.array([token for row in flat for token in row.tokens], dtype=np.int64)
        positions = np.arange(total) + np.repeat(starts - ends + counts, counts)
        groups: list[RowGroup] = []
        places: list[Ints] = []  # [layer groups, tokens] each
        first_row = first_token = 0
        for group in gathered:
            last_row = first_row + len(group.rows)
            last_token = int(ends[last_row - 1])
            groups.append(self._group(group, first_token))
            owner = np.repeat(np.arange(len(group.rows)), group.counts)
            places.append(group.tables[:, owner, positions[first_token:last_token] // self._block_size])
            first_row, first_token = last_row, last_token
        pending = np.flatnonzero(tokens == PENDING)
        pending_slots = slots[np.searchsorted(ends, pending, side="right")]
        slots_of = np.concatenate(places, axis=1) * self._block_size + positions % self._block_size
        logits_rows = _with_forks(_logits_rows(flat, starts + counts, slots, ends - 1), flat)
        if any(row.drafts for row in flat):
            logits_rows = _drafted(logits_rows, flat, tokens)
        scored = [_scored_places(row, first) for row, first in zip(flat, ends - counts, strict=True) if row.targets]
        batch = Batch(
            input_ids=self._tensor(tokens).unsqueeze(0),
            position_ids=self._tensor(positions).unsqueeze(0),
            slot_mapping=self._tensor(slots_of[0]),
            logits_index=self._tensor(np.concatenate((logits_rows.at, *scored)) if scored else logits_rows.at),
            groups=tuple(groups),
        )
        if len(self._windows) > 1:
            batch = replace(batch, others=self._others(batch, gathered, slots_of))
        targets = [PromptTargets(row.request_id, row.slot, row.targets) for row in flat if row.targets]
        return StepInputs(batch, logits_rows, pending, pending_slots, _id_range(tokens), targets)

    def _gathered(self, rows: Sequence[Row]) -> GatheredRows:
        table = np.array([(row.slot, row.start, len(row.tokens)) for row in rows], dtype=np.int64)
        slots, starts, counts = np.ascontiguousarray(table.T)
        # Entries past a row's own blocks may be stale from the slot's previous request: pad them.
        used = -(-(starts + counts) // self._block_size)
        width = int(used.max())
        entries = np.arange(width)
        held = entries < used[:, None]
        groups = len(self._windows)
        tables = self._tables[slots, : width * groups].reshape(len(slots), width, groups).transpose(2, 0, 1)
        if any(self._windows):  # blocks outside a window may belong to another request
            seen = np.array([width * self._block_size if window is None else window for window in self._windows])
            first = np.maximum(starts - seen[:, None] + 1, 0) // self._block_size  # [groups, R]
            held = held & (entries >= first[:, :, None])
        return GatheredRows(rows, slots, starts, counts, np.where(held, tables, self._null_block))

    def _others(self, batch: Batch, gathered: Sequence[GatheredRows], slots_of: Ints) -> tuple[Batch, ...]:
        """The batch for the other layer groups; tensors that do not differ between groups are shared, masks
        included.
        """
        return tuple(
            replace(
                batch,
                slot_mapping=self._tensor(slots_of[index]),
                groups=tuple(
                    replace(rows, block_tables=self._tensor(group.tables[index]))
                    for rows, group in zip(batch.groups, gathered, strict=True)
                ),
                native={},
            )
            for index in range(1, len(self._windows))
        )

    def _group(self, group: GatheredRows, first: int) -> RowGroup:
        longest = int(group.counts.max())
        columns = np.arange(longest)
        inside = columns < group.counts[:, None]
        return RowGroup(
            first=first,
            tokens=int(group.counts.sum()),
            rows=len(group.slots),
            longest=longest,
            block_tables=self._tensor(group.tables[0]),
            context_lens=self._tensor(group.starts + group.counts),
            query_positions=self._tensor(np.where(inside, group.starts[:, None] + columns, -1)),
            padded_index=None if inside.all() else self._tensor(np.flatnonzero(inside)),
            table_blocks=self.table_blocks,
        )

    def _tensor(self, array: Ints) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device, non_blocking=True)


def _id_range(tokens: Ints) -> tuple[int, int]:
    """The least and the largest of the known token ids; (0, 0) if all are pending."""
    known = tokens[tokens != PENDING]
    return (int(known.min()), int(known.max())) if len(known) else (0, 0)


def _logits_rows(
    flat: Sequence[Row], positions: NDArray[np.int64], slots: NDArray[np.int64], last: NDArray[np.int64]
) -> LogitsRows:
    """One logits row for each row of the step."""
    samples = np.array([row.samples for row in flat], dtype=np.bool_)
    return LogitsRows(last, [row.request_id for row in flat], slots, positions, samples)


def _with_forks(logits_rows: LogitsRows, flat: Sequence[Row]) -> LogitsRows:
    """Append the samples that share a row's prompt; they sample from the logits of the shared row."""
    forks = [(index, fork) for index, row in enumerate(flat) for fork in row.forks]
    if not forks:
        return logits_rows
    shared = np.array([index for index, _ in forks])
    slots = np.array([fork.slot for _, fork in forks], dtype=np.int64)
    return LogitsRows(
        np.concatenate((logits_rows.at, logits_rows.at[shared])),
        logits_rows.request_ids + [fork.request_id for _, fork in forks],
        np.concatenate((logits_rows.slots, slots)),
        np.concatenate((logits_rows.positions, logits_rows.positions[shared])),
        np.concatenate((logits_rows.samples, logits_rows.samples[shared])),
    )


def _drafted(logits_rows: LogitsRows, flat: Sequence[Row], tokens: NDArray[np.int64]) -> LogitsRows:
    """One additional logits row per draft token: a row with d drafts uses the logits of its last d + 1 tokens."""
    counts = np.zeros(len(logits_rows.at), dtype=np.int64)
    counts[: len(flat)] = [row.drafts for row in flat]
    ends = np.cumsum(counts + 1)
    of = np.repeat(np.arange(len(counts)), counts + 1)
    behind = ends[of] - 1 - np.arange(len(of))  # draft tokens that follow
    at = logits_rows.at[of] - behind
    follows = np.full(len(of), NO_TOKEN, dtype=np.int64)
    follows[behind > 0] = tokens[at[behind > 0] + 1]
    return LogitsRows(
        at,
        [logits_rows.request_ids[index] for index in of],
        logits_rows.slots[of],
        logits_rows.positions[of] - behind,
        logits_rows.samples[of],
        Drafts((ends - counts - 1)[of], follows),
    )


def _scored_places(row: Row, first: int) -> Ints:
    """Flat indices of the tokens whose logits give the logprobs of the row's targets."""
    return first + np.arange(row.scored.start, row.scored.stop)


def _by_length(rows: Sequence[Row]) -> list[list[Row]]:
    """Single-token rows first, then chunks bucketed by powers of two of their length, so that padding at most
    doubles.
    """
    lengths = [len(row.tokens) for row in rows]
    if max(lengths, default=0) == 1:  # most steps
        return [list(rows)]
    groups: dict[int, list[Row]] = {}
    for row, length in zip(rows, lengths, strict=True):
        groups.setdefault((length - 1).bit_length(), []).append(row)
    return [groups[key] for key in sorted(groups)]

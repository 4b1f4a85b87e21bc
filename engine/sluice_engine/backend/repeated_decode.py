"""The inputs of steps in which the same requests decode one token each, in memory that is written again.

Most steps differ from the one before by a position per row. To build tensors anew takes as long as a tenth of a step of a
small model, on a processor core that the model needs. Two sets of inputs take turns, because one is prepared while the
other is computed.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from sluice_engine.backend.step_inputs import GatheredRows, Ints, LogitsRows, StepInputs
from sluice_engine.model.batch import Batch, RowGroup
from sluice_engine.scheduler import PENDING, Row

_TOKENS = (PENDING,)


class RepeatedDecode:
    """Two sets of inputs over the block tables [slots, W], each for the rows of which it was last built."""

    def __init__(self, tables: Ints, block_size: int, null_block: int) -> None:
        self._tables, self._block_size, self._null_block = tables, block_size, null_block
        self._sets: tuple[_Inputs | None, _Inputs | None] = (None, None)  # of the step before the last one, and of that
        self._extended: list[int] = []  # places of the last step's rows that had new blocks

    def gathered(self, rows: Sequence[Row]) -> GatheredRows | None:
        """The installed rows with their inputs; None if one of them does more than decode the token that the preceding
        step samples.
        """
        if not all(_decodes(row) for row in rows):
            self.forget()
            return None
        inputs, last = self._sets
        extended = [place for place, row in enumerate(rows) if row.new_blocks]
        if inputs is None or not inputs.write(rows, self._tables, {*extended, *self._extended}):
            inputs = _Inputs(rows, self._tables, self._block_size, self._null_block)
        self._sets, self._extended = (last, inputs), extended
        return GatheredRows(rows, inputs.slots, inputs.starts, inputs.counts, inputs.tables, inputs.step)

    def forget(self) -> None:
        """Write neither set again."""
        self._sets, self._extended = (None, None), []


class _Inputs:
    """The inputs of `rows`. Positions are stored once: of a row's token, and of the token that it samples."""

    def __init__(self, rows: Sequence[Row], tables: Ints, block_size: int, null_block: int) -> None:
        self._block_size = block_size
        self._request_ids = [row.request_id for row in rows]
        self.slots = np.array([row.slot for row in rows], dtype=np.int64)
        self.starts = np.array([row.start for row in rows], dtype=np.int64)
        self.counts = np.ones_like(self.starts)
        self._after = np.empty_like(self.starts)
        self._cache_slots = np.empty_like(self.starts)
        width = int(self.starts.max()) // block_size + 1
        self.tables = np.full((1, len(rows), width), null_block, dtype=np.int64)
        self._place(tables, range(len(rows)))
        self.step = self._inputs()

    def write(self, rows: Sequence[Row], tables: Ints, extended: set[int]) -> bool:
        """Write these rows, whose tables have changed at the places `extended` since the last time. False if they are
        other requests or longer than the tables.
        """
        if [row.request_id for row in rows] != self._request_ids:
            return False
        self.starts[:] = [row.start for row in rows]
        if int(self.starts.max()) >= self.tables.shape[2] * self._block_size:
            return False
        self._place(tables, extended)
        for group in self.step.batch.groups:
            group.forget()
        return True

    def _place(self, tables: Ints, changed: Iterable[int]) -> None:
        np.add(self.starts, 1, out=self._after)
        blocks = self.starts // self._block_size
        for place in changed:
            used = blocks[place] + 1
            self.tables[0, place, :used] = tables[self.slots[place], :used]
        np.remainder(self.starts, self._block_size, out=self._cache_slots)
        self._cache_slots += tables[self.slots, blocks] * self._block_size

    def _inputs(self) -> StepInputs:
        places = np.arange(len(self.slots))
        positions, after = torch.from_numpy(self.starts), torch.from_numpy(self._after)
        group = RowGroup(
            first=0,
            tokens=len(places),
            rows=len(places),
            longest=1,
            block_tables=torch.from_numpy(self.tables[0]),
            context_lens=after,
            query_positions=positions[:, None],
            padded_index=None,
        )
        batch = Batch(
            input_ids=torch.full((1, len(places)), PENDING),
            position_ids=positions[None],
            slot_mapping=torch.from_numpy(self._cache_slots),
            logits_index=torch.from_numpy(places),
            groups=(group,),
        )
        samples = np.ones(len(places), dtype=np.bool_)
        logits_rows = LogitsRows(places, self._request_ids, self.slots, self._after, samples)
        return StepInputs(batch, logits_rows, places, self.slots, (0, 0))


def _decodes(row: Row) -> bool:
    return row.tokens == _TOKENS and row.samples and not (row.drafts or row.forks or row.targets)

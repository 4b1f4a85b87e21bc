"""The static inputs of decode graphs: one set of device tensors whose addresses never change, and two host sets.

A host set may be written again only when the step that copied from it has ended; with at most two steps in flight, two
sets suffice. A padding row has slot −1 and context 0: it writes nothing and attends to nothing.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from sluice_engine.backend.cuda.step_tensors import StepTensors
from sluice_engine.backend.step_inputs import GatheredRows

HOST_SETS: Final = 2
_TOKENS, _POSITIONS, _SEQUENCES, _SLOTS = range(4)  # rows of `words`; one row of slots per layer group
_PADDING = -1


@dataclass(frozen=True, slots=True)
class BufferShape:
    """`rows`: the most rows of a step. `width`: blocks of the longest context. `groups`: layer groups."""

    rows: int
    width: int
    groups: int


@dataclass(frozen=True, slots=True)
class _Inputs:
    """words [3 + groups, rows] int64; contexts [rows] int32; tables [groups, rows, width] int32."""

    words: torch.Tensor
    contexts: torch.Tensor
    tables: torch.Tensor

    @classmethod
    def allocated(cls, shape: BufferShape, device: torch.device | None) -> "_Inputs":
        """All rows are padding. Without a device: on the host, pinned where a GPU can copy from it."""
        place = {"pin_memory": torch.cuda.is_available()} if device is None else {"device": device}
        return cls(
            words=torch.full((_SLOTS + shape.groups, shape.rows), _PADDING, dtype=torch.int64, **place),
            contexts=torch.zeros(shape.rows, dtype=torch.int32, **place),
            tables=torch.zeros((shape.groups, shape.rows, shape.width), dtype=torch.int32, **place),
        )


class DecodeBuffers:
    """The inputs of decode steps. `padding_slot` is the sequence slot of padding rows."""

    def __init__(self, shape: BufferShape, device: torch.device, padding_slot: int, block_size: int) -> None:
        self._shape, self._padding_slot, self._block_size = shape, padding_slot, block_size
        self._device = _Inputs.allocated(shape, device)
        self._host = [_Inputs.allocated(shape, None) for _ in range(HOST_SETS)]
        for each in (self._device, *self._host):
            each.words[_POSITIONS] = 0
            each.words[_SEQUENCES] = padding_slot

    def addresses(self) -> tuple[int, ...]:
        """Of all device tensors."""
        return tuple(each.data_ptr() for each in (self._device.words, self._device.contexts, self._device.tables))

    def write(self, index: int, rows: GatheredRows, tokens: NDArray[np.int64], size: int) -> None:
        """Write a step of single-token rows, padded to `size`, into a host set. tokens [R] int64: a negative one is the
        last token that the device sampled for the row's slot.
        """
        host, count = self._host[index], len(tokens)
        words, contexts, tables = host.words.numpy(), host.contexts.numpy(), host.tables.numpy()
        words[_TOKENS, :count] = tokens
        words[_POSITIONS, :count] = rows.starts
        words[_SEQUENCES, :count] = rows.slots
        entries = rows.tables[:, np.arange(count), rows.starts // self._block_size]  # [groups, R]
        words[_SLOTS:, :count] = entries * self._block_size + rows.starts % self._block_size
        contexts[:count] = rows.starts + 1
        tables[:, :count, : rows.tables.shape[2]] = rows.tables
        words[_TOKENS, count:size] = _PADDING
        words[_POSITIONS, count:size] = 0
        words[_SEQUENCES, count:size] = self._padding_slot
        words[_SLOTS:, count:size] = _PADDING
        contexts[count:size] = 0

    def upload(self, index: int, size: int) -> None:
        """Copy `size` rows of a host set to the device, without waiting."""
        source, target = self._host[index], self._device
        target.words[:, :size].copy_(source.words[:, :size], non_blocking=True)
        target.contexts[:size].copy_(source.contexts[:size], non_blocking=True)
        target.tables[:, :size].copy_(source.tables[:, :size], non_blocking=True)

    def sequences(self, size: int) -> torch.Tensor:
        """The sequence slots of the first rows: [size] int64 on the device."""
        return self._device.words[_SEQUENCES, :size]

    def positions(self, size: int) -> torch.Tensor:
        """The positions of the first rows: [size] int64 on the device."""
        return self._device.words[_POSITIONS, :size]

    def step(self, size: int, last: torch.Tensor) -> StepTensors:
        """The first `size` rows as a step. last [slots] int64: the last sampled tokens."""
        words, tables = self._device.words, self._device.tables
        given = words[_TOKENS, :size]
        tokens = torch.where(given < 0, last.index_select(0, self.sequences(size)), given)
        return StepTensors(
            tokens=tokens,
            positions=self.positions(size),
            slots=tuple(words[_SLOTS + group, :size] for group in range(self._shape.groups)),
            tables=tuple(tables[group, :size] for group in range(self._shape.groups)),
            contexts=self._device.contexts[:size],
            logits_index=None,
        )

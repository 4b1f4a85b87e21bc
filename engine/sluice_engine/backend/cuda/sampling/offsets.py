"""Score offsets on the device by slot: logit bias, and −∞ for stop tokens below min_tokens."""

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sluice_engine.backend.cuda.device_queue import DeviceQueue
from sluice_engine.sampling.logit_bias import Offsets
from sluice_kernels.sample import Bias

MOST_OFFSETS: Final = 1024  # of a request in the table, as many as the HTTP API takes


class WideOffsets(NamedTuple):
    """More offsets than the table holds, of a row of a step: values [N] float32 to be added to the scores of ids [N]."""

    row: int
    ids: torch.Tensor
    values: torch.Tensor


def with_offsets(logits: torch.Tensor, wide: Sequence[WideOffsets]) -> torch.Tensor:
    """The logits [R, V] as float32 with these offsets."""
    scores = logits.to(torch.float32, copy=True)
    for row, ids, values in wide:
        scores[row].index_add_(0, ids, values)
    return scores


class DeviceOffsets:
    """A table of `slots` rows on the host, and its copy on the device. Barred tokens come last in a row, so that a request
    that reaches its min_tokens changes its number of entries only. A request with more offsets has tensors of its own.
    """

    def __init__(self, slots: int, device: torch.device) -> None:
        self._device = device
        self._wide: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # by slot: ids and values
        self._ids = np.zeros((slots, MOST_OFFSETS), dtype=np.int32)
        self._values = np.zeros((slots, MOST_OFFSETS), dtype=np.float32)
        self._counts = np.zeros(slots, dtype=np.int32)
        self._barred: dict[int, tuple[int, int]] = {}  # by slot: the limit, and the entries that stay beyond it
        self._rows_changed = self._counts_changed = False
        self.bias = Bias(*(torch.from_numpy(each.copy()).to(device) for each in self._arrays()))

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """On the device."""
        return self.bias.ids, self.bias.values, self.bias.counts

    def join(self, slot: int, offsets: Offsets) -> None:
        """Set the offsets of a slot."""
        ids = np.concatenate((offsets.ids, offsets.barred))
        values = np.concatenate((offsets.values, np.full(len(offsets.barred), -np.inf, dtype=np.float32)))
        self._barred.pop(slot, None)
        self._wide.pop(slot, None)
        if len(offsets.barred):
            self._barred[slot] = (offsets.limit, len(offsets.ids))
        if len(ids) > MOST_OFFSETS:
            self._wide[slot] = torch.from_numpy(ids).to(self._device), torch.from_numpy(values).to(self._device)
            ids, values = ids[:0], values[:0]
        if len(ids):
            self._ids[slot, : len(ids)], self._values[slot, : len(ids)] = ids, values
            self._rows_changed = True
        self._counts_changed |= bool(self._counts[slot] != len(ids))
        self._counts[slot] = len(ids)

    def wide(self, slots: NDArray[np.int64]) -> list[WideOffsets]:
        """Of the rows of a step in these slots."""
        if not self._wide:
            return []
        return [WideOffsets(row, *self._wide[slot]) for row, slot in enumerate(slots.tolist()) if slot in self._wide]

    def advance(self, slots: NDArray[np.int64], positions: NDArray[np.int64]) -> None:
        """The rows in these slots sample their tokens at these positions: no token is barred from its limit on."""
        if not self._barred:
            return
        for slot, position in zip(slots.tolist(), positions.tolist(), strict=True):
            if slot in self._barred and position >= self._barred[slot][0]:
                kept = self._barred.pop(slot)[1]
                if slot in self._wide:
                    ids, values = self._wide[slot]
                    self._wide[slot] = ids[:kept], values[:kept]
                else:
                    self._counts[slot], self._counts_changed = kept, True

    def upload(self, queue: DeviceQueue) -> None:
        """Enqueue a copy of what has changed. The host's table may change again at once."""
        if self._rows_changed or self._counts_changed:
            sources = self._arrays() if self._rows_changed else (self._counts,)
            queue.put(partial(self._copy, [torch.from_numpy(each.copy()) for each in sources]))
        self._rows_changed = self._counts_changed = False

    def _copy(self, sources: list[torch.Tensor]) -> None:
        for target, source in zip(self.tensors[-len(sources) :], sources, strict=True):
            target.copy_(source, non_blocking=True)

    def _arrays(self) -> tuple[NDArray[np.generic], ...]:
        return self._ids, self._values, self._counts

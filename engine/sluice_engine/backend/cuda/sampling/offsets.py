"""Score offsets on the device by slot: logit bias, and −∞ for stop tokens below min_tokens."""

from functools import partial
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from sluice_engine.backend.cuda.device_queue import DeviceQueue
from sluice_engine.sampling.logit_bias import Offsets
from sluice_kernels.sample import Bias

MOST_OFFSETS: Final = 1024  # of a request, as many as the HTTP API takes; the host samples requests with more


class DeviceOffsets:
    """A table of `slots` rows on the host, and its copy on the device. Barred tokens come last in a row, so that a request
    that reaches its min_tokens changes its number of entries only.
    """

    def __init__(self, slots: int, device: torch.device) -> None:
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
        """Set the offsets of a slot, at most MOST_OFFSETS; those beyond are left to the host."""
        ids = np.concatenate((offsets.ids, offsets.barred))[:MOST_OFFSETS]
        barred = np.full(len(offsets.barred), -np.inf, dtype=np.float32)
        self._barred.pop(slot, None)
        if len(ids):
            self._ids[slot, : len(ids)] = ids
            self._values[slot, : len(ids)] = np.concatenate((offsets.values, barred))[:MOST_OFFSETS]
            self._rows_changed = True
        self._counts_changed |= bool(self._counts[slot] != len(ids))
        self._counts[slot] = len(ids)
        if len(barred):
            self._barred[slot] = (offsets.limit, len(offsets.ids))

    def advance(self, slots: NDArray[np.int64], positions: NDArray[np.int64]) -> None:
        """The rows in these slots sample their tokens at these positions: no token is barred from its limit on."""
        if not self._barred:
            return
        for slot, position in zip(slots.tolist(), positions.tolist(), strict=True):
            if slot in self._barred and position >= self._barred[slot][0]:
                self._counts[slot] = self._barred.pop(slot)[1]
                self._counts_changed = True

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

"""The results of decode steps: one copy to pinned host memory per step and kind, read after the step's event."""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from sluice_engine.backend.cuda.buffers import HOST_SETS
from sluice_engine.request import TokenLogprob

LOGPROB_COUNTS: Final = (
    1,
    5,
    20,
)  # top tokens of a step, the least of these that suffices: each is a kernel of its own


class Readback:
    """Written on the device by each step: `sampled` [rows] int64, where a negative token marks a row without a finite
    maximum, and in steps with logprobs `values` [rows, 1 + 20] float32, that of the sampled token first, and `ids` [rows,
    20] int64. Two host copies, one per step in flight.
    """

    def __init__(self, rows: int, device: torch.device) -> None:
        most = LOGPROB_COUNTS[-1]

        def tensors(**place: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            return (
                torch.zeros(rows, dtype=torch.int64, **place),
                torch.zeros((rows, 1 + most), dtype=torch.float32, **place),
                torch.zeros((rows, most), dtype=torch.int64, **place),
            )

        self.sampled, self.values, self.ids = tensors(device=device)
        self._host = [tensors(pin_memory=torch.cuda.is_available()) for _ in range(HOST_SETS)]

    def addresses(self) -> tuple[int, ...]:
        """Of all device tensors."""
        return tuple(each.data_ptr() for each in (self.sampled, self.values, self.ids))

    def download(self, index: int, size: int, logprobs: int = 0) -> None:
        """Copy the results of the first `size` rows into a host set, without waiting. `logprobs`: top tokens of the step;
        0: it has none.
        """
        sampled, values, ids = self._host[index]
        sampled[:size].copy_(self.sampled[:size], non_blocking=True)
        if logprobs:
            values[:size].copy_(self.values[:size], non_blocking=True)
            ids[:size].copy_(self.ids[:size], non_blocking=True)

    def read(self, index: int, count: int) -> NDArray[np.int64]:
        """The tokens of a step that has ended."""
        tokens: NDArray[np.int64] = self._host[index][0][:count].numpy().copy()
        return tokens

    def logprobs(self, index: int, counts: Iterable[tuple[int, int]]) -> dict[int, TokenLogprob]:
        """By row, for (row, top tokens) of a step that has ended."""
        _, values, ids = self._host[index]
        found: dict[int, TokenLogprob] = {}
        for row, count in counts:
            chosen, *best = values[row, : 1 + count].tolist()
            found[row] = TokenLogprob(chosen, tuple(zip(ids[row, :count].tolist(), best, strict=True)))
        return found

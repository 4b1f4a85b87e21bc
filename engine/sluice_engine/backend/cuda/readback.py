"""The results of decode steps: one copy to pinned host memory per step, read after the step's event."""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from sluice_engine.backend.cuda.buffers import HOST_SETS
from sluice_engine.request import TokenLogprob

# Top tokens of a step: the least of these counts that suffices, because each is a kernel of its own.
LOGPROB_COUNTS: Final = (1, 5, 20)


class Readback:
    """Written on the device by each step: `sampled` [rows] int64, where a negative token marks a row without a finite
    maximum, and in steps with logprobs `values` [rows, 1 + 20] float32, that of the sampled token first, and `ids` [rows,
    20] int64. All are parts of one tensor, so that one copy brings them. Two host copies, one per step in flight.
    """

    def __init__(self, rows: int, device: torch.device) -> None:
        self._words, self.sampled, self.ids, self.values = _tensors(rows, device=device)
        pinned = torch.cuda.is_available()
        self._host = [_tensors(rows, pin_memory=pinned) for _ in range(HOST_SETS)]

    def addresses(self) -> tuple[int, ...]:
        """Of all device tensors."""
        return tuple(each.data_ptr() for each in (self.sampled, self.values, self.ids))

    def download(self, index: int, size: int, logprobs: int = 0) -> None:
        """Copy the results of the first `size` rows into a host set by one copy, without waiting. `logprobs`: top tokens of
        the step, for which all rows are copied; 0: it has none.
        """
        count = len(self._words) if logprobs else size
        self._host[index][0][:count].copy_(self._words[:count], non_blocking=True)

    def read(self, index: int, count: int) -> NDArray[np.int64]:
        """The tokens of a step that has ended."""
        tokens: NDArray[np.int64] = self._host[index][1][:count].numpy().copy()
        return tokens

    def logprobs(self, index: int, counts: Iterable[tuple[int, int]]) -> dict[int, TokenLogprob]:
        """By row, for (row, top tokens) of a step that has ended."""
        _, _, ids, values = self._host[index]
        found: dict[int, TokenLogprob] = {}
        for row, count in counts:
            chosen, *best = values[row, : 1 + count].tolist()
            found[row] = TokenLogprob(chosen, tuple(zip(ids[row, :count].tolist(), best, strict=True)))
        return found


def _tensors(rows: int, **place: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """One int64 tensor, and its parts: tokens, ids, and values as float32."""
    most = LOGPROB_COUNTS[-1]
    numbers = rows * (1 + most)
    words = torch.zeros(numbers + -(-numbers // 2), dtype=torch.int64, **place)
    values = words[numbers:].view(torch.float32)[:numbers].view(rows, 1 + most)
    return words, words[:rows], words[rows:numbers].view(rows, most), values

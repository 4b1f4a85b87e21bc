"""The results of decode steps: one copy to pinned host memory per step, read after the step's event."""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from sluice_engine.backend.cuda.buffers import HOST_SETS
from sluice_engine.request import TokenLogprob

# Top tokens of a step that have a kernel of their own each: the least of these that suffices, more by torch.
LOGPROB_COUNTS: Final = (1, 5, 20)


class Readback:
    """Written on the device by each step: `sampled` [rows] int64, where a negative token marks a row without a finite
    maximum, and in steps with logprobs what `scored` gives, for `most` top tokens at most. All are parts of one tensor, so
    that one copy brings what a step has. Two host copies, one per step in flight.
    """

    def __init__(self, rows: int, most: int, device: torch.device) -> None:
        self._rows = rows
        self._words = _words(rows, most, device=device)
        self.sampled = self._words[:rows]
        pinned = torch.cuda.is_available()
        self._host = [_words(rows, most, pin_memory=pinned) for _ in range(HOST_SETS)]

    def addresses(self) -> tuple[int, ...]:
        """Of the device tensor."""
        return (self._words.data_ptr(),)

    def scored(self, size: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Where a step of `size` rows with `count` top tokens writes: values [size, 1 + count] float32, that of the sampled
        token first, and ids [size, count] int64.
        """
        return _scored(self._words[self._rows :], size, count)

    def download(self, index: int, size: int, logprobs: int = 0) -> None:
        """Copy the results of the first `size` rows into a host set by one copy, without waiting. `logprobs`: top tokens of
        the step; 0: it has none.
        """
        count = self._rows + _scored_words(size, logprobs) if logprobs else size
        self._host[index][:count].copy_(self._words[:count], non_blocking=True)

    def read(self, index: int, count: int) -> NDArray[np.int64]:
        """The tokens of a step that has ended."""
        tokens: NDArray[np.int64] = self._host[index][:count].numpy().copy()
        return tokens

    def logprobs(
        self, index: int, size: int, logprobs: int, counts: Iterable[tuple[int, int]]
    ) -> dict[int, TokenLogprob]:
        """By row, for (row, top tokens) of a step that has ended; `size` and `logprobs` are those of its download."""
        values, ids = _scored(self._host[index][self._rows :], size, logprobs)
        found: dict[int, TokenLogprob] = {}
        for row, count in counts:
            chosen, *best = values[row, : 1 + count].tolist()
            found[row] = TokenLogprob(chosen, tuple(zip(ids[row, :count].tolist(), best, strict=True)))
        return found


def _scored(words: torch.Tensor, size: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = words[: size * count].view(size, count)
    values = words[size * count : _scored_words(size, count)].view(torch.float32)[: size * (1 + count)]
    return values.view(size, 1 + count), ids


def _scored_words(size: int, count: int) -> int:
    return size * count + -(-size * (1 + count) // 2)


def _words(rows: int, most: int, **place: Any) -> torch.Tensor:
    return torch.zeros(rows + _scored_words(rows, most), dtype=torch.int64, **place)

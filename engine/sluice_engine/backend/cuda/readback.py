"""The results of decode steps: one copy to pinned host memory per step, read after the step's event."""

import numpy as np
import torch
from numpy.typing import NDArray

from sluice_engine.backend.cuda.buffers import HOST_SETS


class Readback:
    """`sampled` [rows] int64 on the device is written by each step; a negative token marks a row without a finite
    maximum. Two host copies, one per step in flight.
    """

    def __init__(self, rows: int, device: torch.device) -> None:
        self.sampled = torch.zeros(rows, dtype=torch.int64, device=device)
        self._host = [
            torch.zeros(rows, dtype=torch.int64, pin_memory=torch.cuda.is_available()) for _ in range(HOST_SETS)
        ]

    def download(self, index: int, size: int) -> None:
        """Copy the first `size` tokens into a host set, without waiting."""
        self._host[index][:size].copy_(self.sampled[:size], non_blocking=True)

    def read(self, index: int, count: int) -> NDArray[np.int64]:
        """The tokens of a step that has ended."""
        tokens: NDArray[np.int64] = self._host[index][:count].numpy().copy()
        return tokens

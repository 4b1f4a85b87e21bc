"""Single scores moved by request: logit bias, and stop tokens that are barred until min_tokens.

Both are sums on a few entries of a row (a barred token gets −∞), so that one scatter serves the whole batch.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from sluice_engine.request import Sampling


class Edits:
    """What each slot's request adds to which score."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._bias: dict[int, tuple[NDArray[np.int64], NDArray[np.float32]]] = {}
        self._barred: dict[int, tuple[NDArray[np.int64], int]] = {}

    def join(self, slot: int, sampling: Sampling) -> None:
        """The slot's request now edits like this. Ids beyond the logits are left out: they can never be chosen."""
        self._bias.pop(slot, None)
        self._barred.pop(slot, None)
        if sampling.logit_bias:
            inside = [(token, value) for token, value in sampling.logit_bias if 0 <= token < self._width]
            ids = np.array([token for token, _ in inside], dtype=np.int64)
            self._bias[slot] = ids, np.array([value for _, value in inside], dtype=np.float32)
        if sampling.stops_from > 0:
            stops = [token for token in sampling.barred if 0 <= token < self._width]
            self._barred[slot] = np.array(stops, dtype=np.int64), sampling.stops_from

    def apply(self, scores: torch.Tensor, rows: Sequence[int], slots: Sequence[int], positions: Sequence[int]) -> None:
        """Edit rows of scores [N, V] in place. `rows[i]` is of the request in `slots[i]` and samples for
        `positions[i]`."""
        where: list[NDArray[np.int64]] = []
        ids: list[NDArray[np.int64]] = []
        values: list[NDArray[np.float32]] = []
        for row, slot, position in zip(rows, slots, positions, strict=True):
            if slot in self._bias:
                ids.append(self._bias[slot][0])
                values.append(self._bias[slot][1])
                where.append(np.full(len(ids[-1]), row))
            if slot in self._barred and position < self._barred[slot][1]:
                ids.append(self._barred[slot][0])
                values.append(np.full(len(ids[-1]), -np.inf, dtype=np.float32))
                where.append(np.full(len(ids[-1]), row))
        if not ids:
            return
        place = tuple(torch.from_numpy(np.concatenate(part)).to(scores.device) for part in (where, ids))
        scores.index_put_(place, torch.from_numpy(np.concatenate(values)).to(scores.device), accumulate=True)

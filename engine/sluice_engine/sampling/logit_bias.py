"""Adds per-request offsets to single scores: logit bias, and −∞ for stop tokens before min_tokens.

Both are additions to a few entries of a row, so one scatter serves the whole batch.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sluice_engine.sampling_params import SamplingParams


class Offsets(NamedTuple):
    """A request's offsets: values [N] added to the scores of ids [N]; `barred` ids get −∞ at positions below `limit`."""

    ids: NDArray[np.int64]
    values: NDArray[np.float32]
    barred: NDArray[np.int64]
    limit: int


_NO_BIAS = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
_NOT_BARRED = np.empty(0, dtype=np.int64), 0


class ScoreOffsets:
    """The score offsets of each slot's request."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._bias: dict[int, tuple[NDArray[np.int64], NDArray[np.float32]]] = {}
        self._barred: dict[int, tuple[NDArray[np.int64], int]] = {}

    def join(self, slot: int, sampling: SamplingParams, prompt_length: int, stop_ids: frozenset[int]) -> None:
        """Set the offsets of the slot's request. Ids beyond the logits' width are dropped: they can never be
        sampled.
        """
        self._bias.pop(slot, None)
        self._barred.pop(slot, None)
        if sampling.logit_bias:
            inside = [(token, value) for token, value in sampling.logit_bias.items() if 0 <= token < self._width]
            ids = np.array([token for token, _ in inside], dtype=np.int64)
            self._bias[slot] = ids, np.array([value for _, value in inside], dtype=np.float32)
        if sampling.min_tokens > 0 and stop_ids:
            stops = [token for token in sorted(stop_ids) if 0 <= token < self._width]
            self._barred[slot] = np.array(stops, dtype=np.int64), prompt_length + sampling.min_tokens

    def of(self, slot: int) -> Offsets:
        """The offsets of the slot's request."""
        return Offsets(*self._bias.get(slot, _NO_BIAS), *self._barred.get(slot, _NOT_BARRED))

    def apply(self, scores: torch.Tensor, rows: Sequence[int], slots: Sequence[int], positions: Sequence[int]) -> None:
        """Edit rows of scores [N, V] in place. `rows[i]` belongs to the request in `slots[i]`, which samples for
        `positions[i]`.
        """
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

"""Masks of grammars and bad words on the device by row: packed words, copied from pinned memory, where a step has them."""

import numpy as np
import torch

from sluice_engine.backend.cuda.buffers import HOST_SETS
from sluice_engine.sampling.grammar_masks import PackedMasks
from sluice_engine.sampling.mask_source import Broadcast
from sluice_engine.sampling.token_mask import words_of

_ALL = -1  # a word with all bits


class DeviceMasks:
    """`words` [rows, ceil(V / 32)] int32 on the device, and what was copied to it. `share`: of several ranks, overwrites
    the words by those of rank 0.
    """

    def __init__(self, rows: int, vocabulary: int, device: torch.device) -> None:
        self.share: Broadcast | None = None
        pinned = {"pin_memory": torch.cuda.is_available()}
        shape = (rows, words_of(vocabulary))
        self.words = torch.full(shape, _ALL, dtype=torch.int32, device=device)
        self._staged = torch.zeros(shape, dtype=torch.int32, device=device)
        self._places = torch.zeros(rows, dtype=torch.int64, device=device)
        self._host = [
            (torch.zeros(shape, dtype=torch.int32, **pinned), torch.zeros(rows, dtype=torch.int64, **pinned))
            for _ in range(HOST_SETS)
        ]

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """On the device."""
        return self.words, self._staged, self._places

    def write(self, index: int, masks: PackedMasks) -> int:
        """Write the masks of a step into a host set. Returns their number."""
        words, places = (each.numpy() for each in self._host[index])
        count = len(masks.rows)
        words[:count] = masks.words
        places[:count] = np.array(masks.rows, dtype=np.int64)
        return count

    def upload(self, index: int, count: int, size: int) -> None:
        """Give the first `size` rows their masks, `count` from a host set and no bounds to the others, without waiting."""
        self.words[:size].fill_(_ALL)
        if count:
            words, places = self._host[index]
            staged, at = self._staged[:count], self._places[:count]
            staged.copy_(words[:count], non_blocking=True)
            at.copy_(places[:count], non_blocking=True)
            if self.share is not None:
                self.share(staged)
            self.words.index_copy_(0, at, staged)

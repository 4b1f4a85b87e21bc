"""The KV pool: how many blocks fit, and the tensors behind them.

A block holds keys and values of a group of layers (`groups.py`); layers that have the same place in different groups
share a tensor, in which their blocks lie side by side.

One more block than the scheduler knows: the *null block* at the end is always zero and pads block tables. Masked
positions still enter attention as 0 × value, and 0 × NaN is NaN: padding must never point at a block that a broken
request may have filled.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from sluice_engine.model.errors import InsufficientMemory
from sluice_engine.model.groups import LayerGroups, group_layers
from sluice_engine.model.pages import area
from sluice_engine.options import EngineOptions


@dataclass(frozen=True, slots=True)
class KVShape:
    """What one layer caches for one token, and how layers are grouped: all in one, unless said otherwise."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    grouped: LayerGroups | None = None

    @property
    def groups(self) -> LayerGroups:
        """Which layers share blocks."""
        return group_layers([None] * self.layers) if self.grouped is None else self.grouped

    def block_bytes(self, block_size: int) -> int:
        """Bytes of one block over all layers of a group, keys and values."""
        return 2 * self.groups.depth * block_size * self.kv_heads * self.head_dim * self.dtype.itemsize


class KVCache:
    """Keys and values of all layers, zeroed: per place in a group a pair of [num_blocks + 1, block_size, kv_heads,
    head_dim]. `layers` has each layer's pair, `group_of` its group."""

    def __init__(
        self, shape: KVShape, num_blocks: int, block_size: int, device: torch.device, host_blocks: int = 0
    ) -> None:
        self.block_size = block_size
        self.null_block = num_blocks
        size = (num_blocks + 1, block_size, shape.kv_heads, shape.head_dim)
        groups = shape.groups
        # [host_blocks, places, keys and values, block_size, kv_heads, head_dim]: one block is one stretch of memory
        self._host = torch.empty(
            (host_blocks, groups.depth, 2, *size[1:]),
            dtype=shape.dtype,
            pin_memory=host_blocks > 0 and device.type == "cuda",
        )
        self._pairs = [
            (_zeros(size, shape.dtype, device), _zeros(size, shape.dtype, device)) for _ in range(groups.depth)
        ]
        self.layers = [self._pairs[place] for _, place in groups.places]
        self.group_of = [group for group, _ in groups.places]

    @property
    def first_host(self) -> int:
        """From here on block numbers are of host memory."""
        return self.null_block

    @property
    def tensors(self) -> Iterator[torch.Tensor]:
        """Keys and values of one place after another."""
        return (tensor for pair in self._pairs for tensor in pair)

    def copy_within(self, tensor: torch.Tensor, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks of one of the `tensors` in one go, (source, target) each: all sources are read before any
        target is written."""
        sources, targets = torch.tensor(pairs, dtype=torch.int64, device=tensor.device).unbind(1)
        tensor.index_copy_(0, targets, tensor.index_select(0, sources))

    def copy_one(self, tensor: torch.Tensor, source: int, target: int) -> None:
        """Copy one block of one of the `tensors`, which takes no memory."""
        tensor[target].copy_(tensor[source])

    def swap(self, source: int, target: int) -> None:
        """Copy a block to host memory or back, over all its layers; a number from `first_host` on is there."""
        first = self.first_host
        for place, pair in enumerate(self._pairs):
            for part, cache in enumerate(pair):
                if target >= first:
                    self._host[target - first, place, part].copy_(cache[source], non_blocking=True)
                else:
                    cache[target].copy_(self._host[source - first, place, part], non_blocking=True)

    def erase(self, places: torch.Tensor) -> None:
        """Zero single tokens' keys and values, of one group: int64 [N] of block · block_size + offset."""
        for tensor in self.tensors:
            tensor.view(-1, *tensor.shape[2:]).index_fill_(0, places, 0)

    def scrub(self, blocks: Sequence[int]) -> None:
        """Zero these blocks: a request that failed may have left NaN in them."""
        index = torch.tensor(blocks, dtype=torch.int64, device=self._pairs[0][0].device)
        for tensor in self.tensors:
            tensor.index_fill_(0, index, 0)

    def scrub_one(self, block: int) -> None:
        """Zero one block, which takes no memory."""
        for tensor in self.tensors:
            tensor[block].zero_()


def _zeros(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if device.type == "cpu":
        return area(math.prod(size) * dtype.itemsize).view(dtype).view(size)
    return torch.zeros(size, dtype=dtype, device=device)


def blocks_that_fit(options: EngineOptions, shape: KVShape, max_model_length: int, memory_left: int) -> int:
    """Blocks for the pool: `kv_size`, or a share of the memory that is left, but no more than `max_num_seqs` requests
    of the maximum length could ever hold; a model that caches nothing has as many, and they hold nothing. Raises InsufficientMemory when not even one such request fits."""
    each = shape.block_bytes(options.block_size)
    one_request = sum(
        -(-_kept(max_model_length, window, options) // options.block_size) for window in shape.groups.windows
    )
    if each == 0:
        return one_request * options.max_num_seqs
    if options.kv_size is not None:
        blocks = options.kv_size // each
    else:
        blocks = min(int(memory_left * options.kv_memory_fraction) // each, one_request * options.max_num_seqs)
    if blocks < one_request:
        fits = max(0, blocks // len(shape.groups.windows) * options.block_size)
        raise InsufficientMemory(
            f"The KV cache of one request of {max_model_length} tokens needs {one_request * each} bytes, and "
            f"{blocks * each} are available. Give the engine more memory (the container's memory limit, or "
            f"--kv-size), or serve shorter requests: --max-model-length {fits} would fit."
        )
    return int(blocks)


def _kept(tokens: int, window: int | None, options: EngineOptions) -> int:
    """Tokens whose keys and values one request of so many holds at most, in layers that see so many."""
    return tokens if window is None else min(tokens, window + options.max_batched_tokens + 2 * options.block_size)

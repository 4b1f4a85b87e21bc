"""The KV pool: its size in blocks and its tensors.

A block holds the keys and values of one layer group (`layer_groups.py`). Layers at the same index in different groups
share a tensor, in which blocks of all groups are interleaved.

The tensors have one block more than the scheduler uses: the *null block* at the end is always zero and pads block
tables. Masked positions enter attention as 0 × value, and 0 × NaN is NaN, so padding must never reference a block that
a failed request may have filled.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from sluice_engine.backend.cpu.huge_pages import zeroed_memory
from sluice_engine.backend.pool_memory import PoolMemory, check_size
from sluice_engine.backend.resources import binary_size, small_pool
from sluice_engine.config import EngineOptions
from sluice_engine.errors import InsufficientMemory
from sluice_engine.model import int8_entries
from sluice_engine.model.layer_groups import LayerGroups, group_layers


@dataclass(frozen=True, slots=True)
class KVShape:
    """KV size of one layer and token, and the layer groups; without `grouped`, all layers are in one group. A `dtype` of int8
    means entries of `int8_entries.py`.
    """

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    grouped: LayerGroups | None = None

    @property
    def groups(self) -> LayerGroups:
        """The layer groups."""
        return group_layers([None] * self.layers) if self.grouped is None else self.grouped

    @property
    def entry(self) -> int:
        """Elements that one head of one token takes."""
        return int8_entries.entry_length(self.head_dim, self.dtype)

    def block_bytes(self, block_size: int) -> int:
        """Bytes of one block over all layers of a group, keys and values."""
        return 2 * self.groups.depth * block_size * self.kv_heads * self.entry * self.dtype.itemsize


class KVCache:
    """Keys and values of all layers, zeroed: for each index in a group a pair of [num_blocks + 1, block_size, kv_heads,
    entry]. `layers` has each layer's pair, `group_of` each layer's group.
    """

    def __init__(
        self, shape: KVShape, num_blocks: int, block_size: int, device: torch.device, host_blocks: int = 0
    ) -> None:
        self.block_size = block_size
        self.null_block = num_blocks
        size = (num_blocks + 1, block_size, shape.kv_heads, shape.entry)
        groups = shape.groups
        # [host_blocks, depth, keys and values, block_size, kv_heads, entry]: one block is contiguous
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
        """The first block number of host memory."""
        return self.null_block

    @property
    def tensors(self) -> Iterator[torch.Tensor]:
        """All key and value tensors, in turn."""
        return (tensor for tensor, _ in self.parts)

    @property
    def parts(self) -> Iterator[tuple[torch.Tensor, bool]]:
        """The `tensors`, each with whether it has keys."""
        return (part for keys, values in self._pairs for part in ((keys, True), (values, False)))

    def copy_within(self, tensor: torch.Tensor, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks within one of the `tensors` in a single operation, (source, target) each: all sources are
        read before any target is written.
        """
        sources, targets = torch.tensor(pairs, dtype=torch.int64, device=tensor.device).unbind(1)
        tensor.index_copy_(0, targets, tensor.index_select(0, sources))

    def copy_one(self, tensor: torch.Tensor, source: int, target: int) -> None:
        """Copy one block within one of the `tensors`, without allocating memory."""
        tensor[target].copy_(tensor[source])

    def swap(self, source: int, target: int) -> None:
        """Copy a block to or from host memory, over all its layers. Block numbers from `first_host` on are host
        blocks.
        """
        first = self.first_host
        for place, pair in enumerate(self._pairs):
            for part, cache in enumerate(pair):
                if target >= first:
                    self._host[target - first, place, part].copy_(cache[source], non_blocking=True)
                else:
                    cache[target].copy_(self._host[source - first, place, part], non_blocking=True)

    def erase(self, places: torch.Tensor) -> None:
        """Zero single tokens' keys and values in one group: int64 [N] of block · block_size + offset."""
        for tensor, keys in self.parts:
            if tensor.dtype == torch.int8:
                int8_entries.erase(tensor, places, keys=keys)
            else:
                tensor.view(-1, *tensor.shape[2:]).index_fill_(0, places, 0)

    def scrub(self, blocks: Sequence[int]) -> None:
        """Zero these blocks, because a failed request may have left NaN in them."""
        index = torch.tensor(blocks, dtype=torch.int64, device=self._pairs[0][0].device)
        for tensor in self.tensors:
            tensor.index_fill_(0, index, 0)

    def scrub_one(self, block: int) -> None:
        """Zero one block, without allocating memory."""
        for tensor in self.tensors:
            tensor[block].zero_()


def _zeros(size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    if device.type == "cpu":
        return zeroed_memory(math.prod(size) * dtype.itemsize).view(dtype).view(size)
    return torch.zeros(size, dtype=dtype, device=device)


def blocks_that_fit(options: EngineOptions, shape: KVShape, max_model_length: int, memory: PoolMemory) -> int:
    """Number of blocks for the pool: `kv_size` if it is given, else a share of the free memory, but at most what
    `max_num_seqs` requests of the maximum length can hold. A model that caches nothing gets that maximum, and its
    blocks have no size.

    Raises InsufficientMemory if a single request of the maximum length does not fit, or if `kv_size` exceeds an
    accelerator's free memory or the whole memory of a host.
    """
    each = shape.block_bytes(options.block_size)
    one_request = sum(
        -(-_kept(max_model_length, window, options) // options.block_size) for window in shape.groups.windows
    )
    if each == 0:
        return one_request * options.max_num_seqs
    check_size(options.kv_size, memory)
    if options.kv_size is None:
        blocks = min(int(memory.free * options.kv_memory_fraction) // each, one_request * options.max_num_seqs)
    else:
        blocks = options.kv_size // each
    if blocks < one_request:
        fits = max(0, blocks // len(shape.groups.windows) * options.block_size)
        raise InsufficientMemory(_too_small(options, memory, max_model_length, one_request * each, blocks * each, fits))
    return int(blocks)


def _too_small(options: EngineOptions, memory: PoolMemory, tokens: int, needed: int, available: int, fits: int) -> str:
    """The sentence for a pool of `available` bytes where one request of `tokens` needs more; `fits` tokens fit."""
    if options.kv_size is not None:
        return small_pool(tokens, needed, options.kv_size, fits)
    shorter = f", or serve shorter requests: --max-model-length {fits} would fit" if fits else ""
    return (
        f"The KV cache of one request of {tokens} tokens needs {binary_size(needed)}, and {binary_size(available)} are "
        f"available {memory.owner}. Give the engine {memory.remedy}{shorter}."
    )


def _kept(tokens: int, window: int | None, options: EngineOptions) -> int:
    """The most tokens whose KV one request of `tokens` tokens holds, in layers with this window."""
    return (
        tokens if window is None else min(tokens, window + options.limits.max_batched_tokens + 2 * options.block_size)
    )

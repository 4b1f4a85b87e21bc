"""Keys and values as 8-bit integers: one head of one token is its elements, then the scale that they are multiplied with.

The scale (float32, symmetric) is of that head and token alone. A cache [blocks, block_size, kv_heads, entry] has the bytes of
each block in an order of its own: by head, elements and then scales; those of values by token, those of keys in quads of
adjacent tokens. Whole blocks are copied and zeroed as any others. The compiled kernels read and write them
(`engine/native/attention/int8_entry.h`, which has the reasons); these functions are their reference.
"""

from typing import Final

import torch

from sluice_perfmodel.model_memory import INT8_SCALE_BYTES

_SMALLEST: Final = 1e-36  # heads of smaller elements become zeros


def entry_length(head_dim: int, dtype: torch.dtype) -> int:
    """Elements of one head of one token in a KV cache of this dtype."""
    return head_dim + INT8_SCALE_BYTES if dtype == torch.int8 else head_dim


def head_dim_of(entry: int, dtype: torch.dtype) -> int:
    """The inverse of `entry_length`."""
    return entry - INT8_SCALE_BYTES if dtype == torch.int8 else entry


def to_entries(heads: torch.Tensor) -> torch.Tensor:
    """[..., dim] → int8 [..., dim + 4]. A head with an element that is not finite gets the scale NaN."""
    wide = heads.float()
    most = wide.abs().amax(dim=-1, keepdim=True)
    usable = most > _SMALLEST
    of_one = torch.full_like(most, 127) / most  # 127 / most would multiply by a rounded reciprocal
    integers = torch.where(usable & most.isfinite(), wide * of_one, 0.0).round().to(torch.int8)
    scales = torch.where(most.isfinite(), torch.where(usable, most / 127.0, 0.0), torch.nan)
    return torch.cat([integers, scales.contiguous().view(torch.int8)], dim=-1)


def from_entries(entries: torch.Tensor) -> torch.Tensor:
    """int8 [..., dim + 4] → float32 [..., dim]."""
    integers, scales = entries.split([entries.shape[-1] - INT8_SCALE_BYTES, INT8_SCALE_BYTES], dim=-1)
    return integers.float() * scales.contiguous().view(torch.float32)


def entries_of(cache: torch.Tensor, *, keys: bool) -> torch.Tensor:
    """A copy of a cache, of keys or of values, in the order of its shape: int8 [blocks, block_size, kv_heads, dim + 4]."""
    return torch.cat([part.flatten(3) for part in _parts(cache, keys)], dim=-1)


def fill(cache: torch.Tensor, entries: torch.Tensor, *, keys: bool) -> None:
    """Replace the content of a cache. The inverse of `entries_of`."""
    elements, scales = _parts(cache, keys)
    elements.copy_(entries[..., :-INT8_SCALE_BYTES].unflatten(-1, elements.shape[3:]))
    scales.copy_(entries[..., -INT8_SCALE_BYTES:].unsqueeze(3))


def erase(cache: torch.Tensor, places: torch.Tensor, *, keys: bool) -> None:
    """Zero single tokens: int64 [N] of block · block_size + offset."""
    block, offset = places // cache.shape[1], places % cache.shape[1]
    for part in _parts(cache, keys):
        part[block, offset] = 0


def _parts(cache: torch.Tensor, keys: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of the elements [blocks, block_size, kv_heads, dim / 4, 4] and of the scales [blocks, block_size, kv_heads, 1, 4]."""
    blocks, size, heads, entry = cache.shape
    quads = (entry - INT8_SCALE_BYTES) // 4
    by_head = cache.view(blocks, heads, size * entry)
    elements, scales = by_head.split([size * quads * 4, size * INT8_SCALE_BYTES], dim=-1)
    if keys:
        elements = elements.unflatten(-1, (quads, size, 4)).permute(0, 3, 1, 2, 4)
    else:
        elements = elements.unflatten(-1, (size, quads, 4)).permute(0, 2, 1, 3, 4)
    return elements, scales.unflatten(-1, (size, 1, 4)).permute(0, 2, 1, 3, 4)

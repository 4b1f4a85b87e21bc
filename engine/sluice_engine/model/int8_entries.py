"""Keys and values as 8-bit integers: one head of one token is its elements, then the scale that they are multiplied with.

The scale (float32, symmetric) is of that head and token alone, so entries are written once, copied and zeroed as any others.
The compiled kernels read and write them (`engine/native/attention/int8_entry.h`); these functions are their reference.
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

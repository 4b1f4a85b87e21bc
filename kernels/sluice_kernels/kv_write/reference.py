"""Query and key norm, rotary embedding and KV write in plain torch: the specification of the kernel."""

from dataclasses import dataclass

import torch

from sluice_kernels.fp8 import FP8, to_fp8


@dataclass(frozen=True)
class Rope:
    """Rotary embedding of the first `table.shape[1]` elements of each head; the rest passes through.

    table [positions, rotary_dim] float32: cosines, then sines, of the rotary_dim / 2 pairs (i, i + rotary_dim / 2);
    positions [tokens] int32 or int64.
    """

    table: torch.Tensor
    positions: torch.Tensor


@dataclass(frozen=True)
class HeadNorm:
    """RMS norm of each query and key head before the rotary embedding: weights [head_dim]."""

    query: torch.Tensor
    key: torch.Tensor
    eps: float
    weight_offset: float = 0.0


@dataclass(frozen=True)
class PagedCache:
    """keys, values [num_blocks, block_size, kv_heads, head_dim], any strides but the last; `slots` [tokens] int32 or
    int64: block · block_size + place, −1 for a token that is not written. With an e4m3 cache, what is stored is the
    value over its head's scale; scales [kv_heads] float32.
    """

    keys: torch.Tensor
    values: torch.Tensor
    slots: torch.Tensor
    key_scales: torch.Tensor | None = None
    value_scales: torch.Tensor | None = None


def kv_write_reference(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cache: PagedCache,
    rope: Rope | None,
    norm: HeadNorm | None,
) -> torch.Tensor:
    """query [tokens, q_heads, head_dim], key, value [tokens, kv_heads, head_dim] → the query to attend with, of the same
    shape. The key and the value go into the cache. Norm and rotary embedding are in float32 and rounded once.
    """
    rotated = _prepared(query, rope, None if norm is None else (norm.query, norm)).to(query.dtype)
    keys = _prepared(key, rope, None if norm is None else (norm.key, norm))
    block_size = cache.keys.shape[1]
    for token, slot in enumerate(cache.slots.tolist()):
        if slot < 0:
            continue
        place = (slot // block_size, slot % block_size)
        cache.keys[place] = _stored(keys[token], cache.keys.dtype, cache.key_scales)
        cache.values[place] = _stored(value[token].float(), cache.values.dtype, cache.value_scales)
    return rotated


def _prepared(heads: torch.Tensor, rope: Rope | None, norm: tuple[torch.Tensor, HeadNorm] | None) -> torch.Tensor:
    """[tokens, heads, head_dim] → float32, normalised and rotated."""
    values = heads.float()
    if norm is not None:
        weight, rule = norm
        scale = torch.rsqrt(values.square().mean(-1, keepdim=True) + rule.eps)
        values = values * scale * (weight.float() + rule.weight_offset)
    if rope is None:
        return values
    width = rope.table.shape[1]
    cosines, sines = rope.table[rope.positions.long()][:, None].chunk(2, dim=-1)
    first, second = values[..., :width].chunk(2, dim=-1)
    turned = (first * cosines - second * sines, second * cosines + first * sines, values[..., width:])
    return torch.cat(turned, dim=-1)


def _stored(heads: torch.Tensor, dtype: torch.dtype, scales: torch.Tensor | None) -> torch.Tensor:
    """[kv_heads, head_dim] float32 in the cache's dtype."""
    if scales is not None:
        heads = heads / scales[:, None]
    return to_fp8(heads) if dtype == FP8 else heads.to(dtype)

"""Query and key norm, rotary embedding and KV write in one pass over a step's QKV.

A program has a few tokens of one key-value head and of its query heads. A head is read in three parts: the two halves
that the rotary embedding combines, and the rest; so no element changes its thread.
"""

import torch
import triton
import triton.language as tl

from sluice_kernels import launch
from sluice_kernels.integers import cdiv, next_power_of_2
from sluice_kernels.kv_write.configs import config_of
from sluice_kernels.kv_write.reference import HeadNorm, PagedCache, Rope
from sluice_kernels.tiles import in_fp8_range


@triton.jit
def _part(start, dims, mask, other):  # type: ignore[no-untyped-def]
    return tl.load(start[:, None] + dims[None, :], mask=mask, other=other).to(tl.float32)


@triton.jit
def _cast(x, dtype: tl.constexpr):  # type: ignore[no-untyped-def]
    """In the cache's dtype; e4m3 saturates."""
    if dtype == tl.float8e4nv:
        x = in_fp8_range(x)
    return x.to(dtype)


@triton.jit
def _transform(  # type: ignore[no-untyped-def]
    source,  # [rows] pointers to heads
    target,  # [rows] pointers to heads
    row_mask,  # [rows]: reads
    write_mask,  # [rows]: writes
    token,  # [rows]
    weight,  # [head_dim] or None
    table,  # [positions, rotary_dim] float32 or None
    positions,  # [tokens]
    scale,  # [rows]: what is written is divided by it
    table_stride,
    eps,
    weight_offset,
    dtype: tl.constexpr,
    head_dim: tl.constexpr,
    half: tl.constexpr,
    half_block: tl.constexpr,
    rest_block: tl.constexpr,
):
    dim = tl.arange(0, half_block)
    rest = 2 * half + tl.arange(0, rest_block)
    half_mask, rest_mask = dim < half, rest < head_dim
    first = _part(source, dim, row_mask[:, None] & half_mask[None, :], 0.0)
    second = _part(source, dim + half, row_mask[:, None] & half_mask[None, :], 0.0)
    if 2 * half < head_dim:
        third = _part(source, rest, row_mask[:, None] & rest_mask[None, :], 0.0)
    if weight is not None:
        squares = tl.sum(first * first, 1) + tl.sum(second * second, 1)
        if 2 * half < head_dim:
            squares += tl.sum(third * third, 1)
            third *= (tl.load(weight + rest, mask=rest_mask, other=0.0).to(tl.float32) + weight_offset)[None, :]
        norm = tl.rsqrt(squares / head_dim + eps)[:, None]
        first *= norm * (tl.load(weight + dim, mask=half_mask, other=0.0).to(tl.float32) + weight_offset)[None, :]
        second *= (
            norm * (tl.load(weight + dim + half, mask=half_mask, other=0.0).to(tl.float32) + weight_offset)[None, :]
        )
        if 2 * half < head_dim:
            third *= norm
    if table is not None:
        at = table + tl.load(positions + token, mask=row_mask, other=0).to(tl.int64) * table_stride
        cosines = _part(at, dim, row_mask[:, None] & half_mask[None, :], 0.0)
        sines = _part(at, dim + half, row_mask[:, None] & half_mask[None, :], 0.0)
        first, second = first * cosines - second * sines, second * cosines + first * sines
    mask = write_mask[:, None] & half_mask[None, :]
    tl.store(target[:, None] + dim[None, :], _cast(first / scale[:, None], dtype), mask=mask)
    tl.store(target[:, None] + (dim + half)[None, :], _cast(second / scale[:, None], dtype), mask=mask)
    if 2 * half < head_dim:
        mask = write_mask[:, None] & rest_mask[None, :]
        tl.store(target[:, None] + rest[None, :], _cast(third / scale[:, None], dtype), mask=mask)


@triton.jit(do_not_specialize=["token_count"])
def _kv_write(  # type: ignore[no-untyped-def]
    query,  # [tokens, q_heads, head_dim]
    key,  # [tokens, kv_heads, head_dim]
    value,  # [tokens, kv_heads, head_dim]
    out,  # [tokens, q_heads, head_dim]
    key_cache,  # [num_blocks, block_size, kv_heads, head_dim]
    value_cache,  # [num_blocks, block_size, kv_heads, head_dim]
    slots,  # [tokens]
    key_scales,  # [kv_heads] float32 or None
    value_scales,  # [kv_heads] float32 or None
    query_weight,  # [head_dim] or None
    key_weight,  # [head_dim] or None
    table,  # [positions, rotary_dim] float32 or None
    positions,  # [tokens] or None
    token_count,
    query_stride_token,
    query_stride_head,
    key_stride_token,
    key_stride_head,
    value_stride_token,
    value_stride_head,
    key_cache_stride_block,
    key_cache_stride_token,
    key_cache_stride_head,
    value_cache_stride_block,
    value_cache_stride_token,
    value_cache_stride_head,
    table_stride,
    eps,
    weight_offset,
    q_heads: tl.constexpr,
    group: tl.constexpr,
    head_dim: tl.constexpr,
    block_size: tl.constexpr,
    tokens: tl.constexpr,
    rows: tl.constexpr,
    half: tl.constexpr,
    half_block: tl.constexpr,
    rest_block: tl.constexpr,
    dims: tl.constexpr,
):
    first_token = tl.program_id(0).to(tl.int64) * tokens
    kv_head = tl.program_id(1)

    row = tl.arange(0, rows)
    token = first_token + row // group
    head = kv_head * group + row % group
    row_mask = (row < tokens * group) & (token < token_count)
    _transform(
        query + token * query_stride_token + head * query_stride_head,
        out + (token * q_heads + head) * head_dim,
        row_mask, row_mask, token, query_weight, table, positions, tl.full([rows], 1.0, tl.float32),
        table_stride, eps, weight_offset, out.dtype.element_ty, head_dim, half, half_block, rest_block,
    )  # fmt: skip

    token = first_token + tl.arange(0, tokens)
    token_mask = token < token_count
    slot = tl.load(slots + token, mask=token_mask, other=-1).to(tl.int64)
    written = slot >= 0
    block, place = slot // block_size, slot % block_size
    scale = tl.full([tokens], 1.0, tl.float32)
    if key_scales is not None:
        scale *= tl.load(key_scales + kv_head)
    _transform(
        key + token * key_stride_token + kv_head * key_stride_head,
        key_cache + block * key_cache_stride_block + place * key_cache_stride_token + kv_head * key_cache_stride_head,
        written, written, token, key_weight, table, positions, scale,
        table_stride, eps, weight_offset, key_cache.dtype.element_ty, head_dim, half, half_block, rest_block,
    )  # fmt: skip

    dim = tl.arange(0, dims)
    mask = written[:, None] & (dim < head_dim)[None, :]
    source = value + token * value_stride_token + kv_head * value_stride_head
    stored = _part(source, dim, mask, 0.0)
    if value_scales is not None:
        stored = stored / tl.load(value_scales + kv_head)
    target = (
        value_cache + block * value_cache_stride_block + place * value_cache_stride_token
        + kv_head * value_cache_stride_head
    )  # fmt: skip
    tl.store(target[:, None] + dim[None, :], _cast(stored, value_cache.dtype.element_ty), mask=mask)


def kv_write_triton(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cache: PagedCache,
    rope: Rope | None,
    norm: HeadNorm | None,
) -> torch.Tensor:
    """Computes `kv_write_reference`."""
    count, q_heads, head_dim = query.shape
    kv_heads = key.shape[1]
    group = q_heads // kv_heads
    out = launch.empty((count, q_heads, head_dim), query.dtype, query.device)
    config = config_of(group)
    if count == 0 or config is None:
        return out
    half = (head_dim if rope is None else rope.table.shape[1]) // 2
    launch.launch(
        _kv_write, (cdiv(count, config.tokens), kv_heads),
        (
            query, key, value, out, cache.keys, cache.values, cache.slots, cache.key_scales, cache.value_scales,
            None if norm is None else norm.query, None if norm is None else norm.key,
            None if rope is None else rope.table, None if rope is None else rope.positions, count,
            *query.stride()[:2], *key.stride()[:2], *value.stride()[:2],
            *cache.keys.stride()[:3], *cache.values.stride()[:3],
            0 if rope is None else rope.table.stride(0),
            0.0 if norm is None else norm.eps, 0.0 if norm is None else norm.weight_offset,
        ),
        q_heads=q_heads, group=group, head_dim=head_dim, block_size=cache.keys.shape[1], tokens=config.tokens,
        rows=next_power_of_2(config.tokens * group), half=half, half_block=next_power_of_2(half),
        rest_block=next_power_of_2(max(1, head_dim - 2 * half)), dims=next_power_of_2(head_dim),
        num_warps=config.warps,
    )  # fmt: skip
    return out

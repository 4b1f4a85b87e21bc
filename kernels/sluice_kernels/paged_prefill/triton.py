"""Paged prefill attention in Triton: a tile of query rows per program, over ragged chunks and paged context.

A tile has consecutive tokens of one sequence, each with all query heads of a key-value head. Sequence i owns the tiles
from starts[i] // tokens_per_tile + i on: an upper bound that needs no host work, so that the grid depends on shapes
alone; a surplus program returns at once. A tile goes without masks through the context that all of its rows see, then
with masks through the rest.
"""

import torch
import triton
import triton.language as tl

from sluice_kernels import launch
from sluice_kernels.integers import next_power_of_2
from sluice_kernels.paged import LOG2_E, AttentionRule, PagedKV
from sluice_kernels.paged_decode.triton import operand_of
from sluice_kernels.paged_prefill.configs import config_of
from sluice_kernels.tiles import block_of, tanh


@triton.jit
def _sequence_of(starts, sequences, index, tokens: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sequence that owns a tile, by binary search."""
    low = 0
    high = sequences
    while high - low > 1:
        middle = (low + high) // 2
        if tl.load(starts + middle) // tokens + middle <= index:
            low = middle
        else:
            high = middle
    return low


@triton.jit
def _page(place, valid, dim_mask, masked: tl.constexpr, whole: tl.constexpr):  # type: ignore[no-untyped-def]
    """Keys or values [tile, dims]; 0 where a mask hides them. Only a masked pass has tokens that are not valid."""
    if masked:
        return tl.load(place, mask=valid[:, None] & dim_mask[None, :], other=0.0)
    elif whole:  # noqa: RET505 - Triton needs one path to each return
        return tl.load(place)
    else:
        return tl.load(place, mask=dim_mask[None, :], other=0.0)


@triton.jit
def _attend(  # type: ignore[no-untyped-def]
    acc,  # [rows, dims] float32
    maximum,  # [rows] float32
    total,  # [rows] float32
    q,  # [rows, dims]
    at,  # [rows]: positions of the rows
    key_start,  # pointer to the key-value head in block 0
    value_start,
    table,  # pointer to the sequence's row of the block table
    begin,
    end,
    visible,  # no row sees a position before this one
    scale_log2,
    softcap_log2,
    window,
    key_stride_block,
    key_stride_token,
    value_stride_block,
    value_stride_token,
    head_dim: tl.constexpr,
    block_size: tl.constexpr,
    dims: tl.constexpr,
    tile: tl.constexpr,
    masked: tl.constexpr,
    capped: tl.constexpr,
    windowed: tl.constexpr,
    operand: tl.constexpr,
):
    dim = tl.arange(0, dims)
    token = tl.arange(0, tile)
    dim_mask = dim < head_dim
    for offset in range(begin, end, tile):
        position = offset + token
        valid = position < end
        if windowed:
            valid &= position >= visible
        block = block_of(table, position, valid, block_size)
        inside = position % block_size
        key_at = block * key_stride_block + inside * key_stride_token
        k = _page(key_start + key_at[:, None] + dim[None, :], valid, dim_mask, masked, head_dim == dims).to(operand)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee")
        unit = scale_log2  # of the scores: what turns them into exponents of two, in the instruction that subtracts
        if capped:
            scores = softcap_log2 * tanh(scores * scale_log2 / softcap_log2)
            unit = 1.0
        if masked:
            seen = valid[None, :] & (position[None, :] <= at[:, None])
            if windowed:
                seen &= position[None, :] > at[:, None] - window
            scores = tl.where(seen, scores, -float("inf"))
        new_maximum = tl.maximum(maximum, tl.max(scores, 1) * unit)
        base = new_maximum
        if windowed:  # a row may have seen nothing yet, and -inf - (-inf) would be NaN
            base = tl.where(new_maximum == -float("inf"), 0.0, new_maximum)
        weights = tl.exp2(scores * unit - base[:, None])
        shrink = tl.exp2(maximum - base)
        value_at = block * value_stride_block + inside * value_stride_token
        v = _page(value_start + value_at[:, None] + dim[None, :], valid, dim_mask, masked, head_dim == dims).to(operand)
        acc = acc * shrink[:, None]
        acc = tl.dot(weights.to(operand), v, acc, input_precision="ieee")
        total = total * shrink + tl.sum(weights, 1)
        maximum = new_maximum
    return acc, maximum, total


@triton.jit(do_not_specialize=["sequences"])
def _paged_prefill(  # type: ignore[no-untyped-def]
    query,  # [tokens, q_heads, head_dim]
    starts,  # [sequences + 1]
    key_cache,  # [num_blocks, block_size, kv_heads, head_dim]
    value_cache,  # [num_blocks, block_size, kv_heads, head_dim]
    tables,  # [sequences, max_blocks]
    contexts,  # [sequences]
    key_scales,  # [kv_heads] float32 or None
    value_scales,  # [kv_heads] float32 or None
    sinks,  # [q_heads] float32 or None
    out,  # [tokens, q_heads, head_dim]
    sequences,
    scale_log2,
    softcap_log2,
    window,
    query_stride_token,
    query_stride_head,
    key_stride_block,
    key_stride_token,
    key_stride_head,
    value_stride_block,
    value_stride_token,
    value_stride_head,
    table_stride,
    q_heads: tl.constexpr,
    group: tl.constexpr,
    head_dim: tl.constexpr,
    block_size: tl.constexpr,
    rows: tl.constexpr,
    dims: tl.constexpr,
    tile: tl.constexpr,
    capped: tl.constexpr,
    windowed: tl.constexpr,
    operand: tl.constexpr,
):
    tokens: tl.constexpr = rows // group
    kv_head = tl.program_id(1)
    index = tl.num_programs(0) - 1 - tl.program_id(0)  # the last tiles see most: the first programs have them
    sequence = _sequence_of(starts, sequences, index, tokens)
    first = tl.load(starts + sequence)
    length = tl.load(starts + sequence + 1) - first
    offset = (index - first // tokens - sequence) * tokens  # of the tile's first token in its chunk
    if offset >= length:
        return
    context = tl.load(contexts + sequence)
    row = tl.arange(0, rows)
    dim = tl.arange(0, dims)
    token = offset + row // group
    head = kv_head * group + row % group
    mask = ((row < tokens * group) & (token < length))[:, None] & (dim < head_dim)[None, :]
    flat = (first + token).to(tl.int64)
    q = tl.load(
        query + flat[:, None] * query_stride_token + head[:, None] * query_stride_head + dim[None, :],
        mask=mask,
        other=0.0,
    ).to(operand)
    if key_scales is not None:
        scale_log2 *= tl.load(key_scales + kv_head)

    oldest = context - length + offset  # position of the tile's first token
    end = tl.minimum(oldest + tokens, context)
    at = context - length + token
    maximum = tl.full([rows], -float("inf"), tl.float32)
    total = tl.zeros([rows], tl.float32)
    acc = tl.zeros([rows, dims], tl.float32)
    key_start = key_cache + kv_head * key_stride_head
    value_start = value_cache + kv_head * value_stride_head
    table = tables + sequence.to(tl.int64) * table_stride
    if windowed:
        visible = tl.maximum(oldest - window + 1, 0)
        begin = visible // tile * tile
    else:
        visible = 0
        begin = (oldest + 1) // tile * tile
        acc, maximum, total = _attend(
            acc, maximum, total, q, at, key_start, value_start, table, 0, begin, visible,
            scale_log2, softcap_log2, window,
            key_stride_block, key_stride_token, value_stride_block, value_stride_token,
            head_dim, block_size, dims, tile, False, capped, windowed, operand,
        )  # fmt: skip
    acc, maximum, total = _attend(
        acc, maximum, total, q, at, key_start, value_start, table, begin, end, visible,
        scale_log2, softcap_log2, window,
        key_stride_block, key_stride_token, value_stride_block, value_stride_token,
        head_dim, block_size, dims, tile, True, capped, windowed, operand,
    )  # fmt: skip

    if sinks is not None:
        sink = tl.load(sinks + head) * 1.4426950408889634
        new_maximum = tl.maximum(maximum, sink)
        acc *= tl.exp2(maximum - new_maximum)[:, None]
        total = total * tl.exp2(maximum - new_maximum) + tl.exp2(sink - new_maximum)
    if value_scales is not None:
        acc *= tl.load(value_scales + kv_head)
    result = acc / tl.where(total == 0.0, 1.0, total)[:, None]
    place = out + (flat[:, None] * q_heads + head[:, None]) * head_dim + dim[None, :]
    tl.store(place, result.to(out.dtype.element_ty), mask=mask)


def paged_prefill_triton(query: torch.Tensor, starts: torch.Tensor, kv: PagedKV, rule: AttentionRule) -> torch.Tensor:
    """Computes `paged_prefill_reference`, except for padding rows, which are not written."""
    count, q_heads, head_dim = query.shape
    sequences, kv_heads = kv.tables.shape[0], kv.keys.shape[2]
    out = launch.empty((count, q_heads, head_dim), query.dtype, query.device)
    if count == 0 or sequences == 0:
        return out
    group = q_heads // kv_heads
    dims = max(16, next_power_of_2(head_dim))
    config = config_of(launch.device_of(query).architecture, dims, count * group / sequences)
    launch.launch(
        _paged_prefill, (count // (config.rows // group) + sequences, kv_heads),
        (
            query, starts, kv.keys, kv.values, kv.tables, kv.contexts, kv.key_scales, kv.value_scales, rule.sinks, out,
            sequences, rule.scale_for(head_dim) * LOG2_E, (rule.softcap or 0.0) * LOG2_E, rule.window or 0,
            *query.stride()[:2], *kv.keys.stride()[:3], *kv.values.stride()[:3], kv.tables.stride(0),
        ),
        q_heads=q_heads, group=group, head_dim=head_dim, block_size=kv.keys.shape[1], rows=config.rows, dims=dims,
        tile=config.tile, capped=rule.softcap is not None, windowed=rule.window is not None,
        operand=operand_of(query), num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
    return out

"""Paged decode attention in Triton: split-KV, with all query heads of a key-value head packed into one tile.

One program per (sequence, key-value head, split) runs an online softmax over its share of the context. With one split it
writes the result; with more, a second launch merges them (Flash-Decoding). The grid depends on shapes only, never on
lengths, so that both launches fit into a CUDA graph; a program with an empty share returns at once.

Decode is bound by memory traffic of keys and values. Packing the group's query rows into one tile reads each key and
value only once (arXiv 2511.11581 calls the tiles Q-blocks).
"""

import torch
import triton
import triton.language as tl

from sluice_kernels import launch
from sluice_kernels.fp8 import FP8
from sluice_kernels.integers import next_power_of_2
from sluice_kernels.paged import LOG2_E, AttentionRule, PagedKV
from sluice_kernels.paged_decode.configs import config_of, splits_for
from sluice_kernels.tiles import block_of, tanh, wide_fp8

MIN_ROWS = 16  # tl.dot's smallest tile


@triton.jit
def _page(place, mask, operand: tl.constexpr, fp8: tl.constexpr):  # type: ignore[no-untyped-def]
    """Keys or values [tile, dims] as an operand of a product; 0 where the mask hides them."""
    stored = tl.load(place, mask=mask, other=0.0)
    if fp8:
        return wide_fp8(stored)
    else:  # noqa: RET505 - Triton needs one path to each return
        return stored.to(operand)


@triton.jit
def _attend_split(  # type: ignore[no-untyped-def]
    query,  # [sequences, q_heads, head_dim]
    key_cache,  # [num_blocks, block_size, kv_heads, head_dim]
    value_cache,  # [num_blocks, block_size, kv_heads, head_dim]
    tables,  # [sequences, max_blocks]
    contexts,  # [sequences]
    key_scales,  # [kv_heads] float32 or None
    value_scales,  # [kv_heads] float32 or None
    sinks,  # [q_heads] float32 or None
    out,  # one split: [sequences, q_heads, head_dim], else [sequences, q_heads, splits, head_dim] float32 numerators
    partial_max,  # [sequences, q_heads, splits] float32: the numerator's maximum, as an exponent of two; or None
    partial_sum,  # [sequences, q_heads, splits] float32: softmax denominator; or None
    scale_log2,
    softcap_log2,  # 0: none
    window,  # 0: none
    query_stride_sequence,
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
    splits: tl.constexpr,
    head_dim: tl.constexpr,
    block_size: tl.constexpr,
    rows: tl.constexpr,
    dims: tl.constexpr,
    tile: tl.constexpr,
    capped: tl.constexpr,
    windowed: tl.constexpr,
    operand: tl.constexpr,
    fp8: tl.constexpr,  # the cache, compiled: its values become float16
):
    sequence = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    context = tl.load(contexts + sequence)
    visible = 0
    if windowed:
        visible = tl.maximum(context - window, 0)
    base = visible // tile * tile
    share = tl.cdiv(tl.cdiv(context - base, splits), tile) * tile
    start = base + split * share
    end = tl.minimum(start + share, context)

    row = tl.arange(0, rows)
    dim = tl.arange(0, dims)
    head = kv_head * group + row
    row_mask = row < group
    dim_mask = dim < head_dim
    out_mask = row_mask[:, None] & dim_mask[None, :]
    slot = (sequence * q_heads + head) * splits + split
    place = out + slot[:, None] * head_dim + dim[None, :]
    if start >= end:
        if splits == 1:
            tl.store(place, tl.zeros([rows, dims], out.dtype.element_ty), mask=out_mask)
        else:  # an empty share has weight 0 in the merge; its numerator is never read
            tl.store(partial_max + slot, tl.full([rows], -float("inf"), tl.float32), mask=row_mask)
            tl.store(partial_sum + slot, tl.zeros([rows], tl.float32), mask=row_mask)
        return

    if key_scales is not None:
        scale_log2 *= tl.load(key_scales + kv_head)
    q = tl.load(
        query + sequence * query_stride_sequence + head[:, None] * query_stride_head + dim[None, :],
        mask=out_mask,
        other=0.0,
    )
    scale = tl.full([rows], 1.0, tl.float32) * scale_log2
    if fp8:  # float16 has less range than bfloat16: each row by its largest
        wide = q.to(tl.float32)
        largest = tl.max(tl.abs(wide), 1)
        largest = tl.where(largest > 0.0, largest, 1.0)
        q = wide / largest[:, None]
        scale *= largest
    q = q.to(operand)
    maximum = tl.full([rows], -float("inf"), tl.float32)
    total = tl.zeros([rows], tl.float32)
    acc = tl.zeros([rows, dims], tl.float32)
    table = tables + sequence * table_stride
    token = tl.arange(0, tile)
    for offset in range(start, end, tile):
        position = offset + token
        valid = position < end
        if windowed:
            valid &= position >= visible
        block = block_of(table, position, valid, block_size)
        inside = position % block_size
        kv_mask = valid[:, None] & dim_mask[None, :]
        key_at = block * key_stride_block + inside * key_stride_token + kv_head * key_stride_head
        k = _page(key_cache + key_at[:, None] + dim[None, :], kv_mask, operand, fp8)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale[:, None]
        if capped:
            scores = softcap_log2 * tanh(scores / softcap_log2)
        scores = tl.where(valid[None, :], scores, -float("inf"))
        new_maximum = tl.maximum(maximum, tl.max(scores, 1))
        weights = tl.exp2(scores - new_maximum[:, None])
        shrink = tl.exp2(maximum - new_maximum)
        value_at = block * value_stride_block + inside * value_stride_token + kv_head * value_stride_head
        v = _page(value_cache + value_at[:, None] + dim[None, :], kv_mask, operand, fp8)
        acc = acc * shrink[:, None] + tl.dot(weights.to(operand), v, input_precision="ieee")
        total = total * shrink + tl.sum(weights, 1)
        maximum = new_maximum

    if splits == 1:
        if sinks is not None:
            sink = tl.load(sinks + head, mask=row_mask, other=0.0) * 1.4426950408889634
            new_maximum = tl.maximum(maximum, sink)
            acc *= tl.exp2(maximum - new_maximum)[:, None]
            total = total * tl.exp2(maximum - new_maximum) + tl.exp2(sink - new_maximum)
        if value_scales is not None:
            acc *= tl.load(value_scales + kv_head)
        tl.store(place, (acc / total[:, None]).to(out.dtype.element_ty), mask=out_mask)
    else:
        tl.store(place, acc, mask=out_mask)
        tl.store(partial_max + slot, maximum, mask=row_mask)
        tl.store(partial_sum + slot, total, mask=row_mask)


@triton.jit
def _merge_splits(  # type: ignore[no-untyped-def]
    partial_out,  # [sequences, q_heads, splits, head_dim] float32
    partial_max,  # [sequences, q_heads, splits] float32
    partial_sum,  # [sequences, q_heads, splits] float32
    value_scales,  # [kv_heads] float32 or None
    sinks,  # [q_heads] float32 or None
    out,  # [sequences, q_heads, head_dim]
    q_heads: tl.constexpr,
    group: tl.constexpr,
    splits: tl.constexpr,
    head_dim: tl.constexpr,
    dims: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)  # sequence × q_heads + head
    head = row % q_heads
    split = tl.arange(0, splits)
    dim = tl.arange(0, dims)
    dim_mask = dim < head_dim
    maximum = tl.load(partial_max + row * splits + split)
    total = tl.load(partial_sum + row * splits + split)
    used = total > 0.0
    highest = tl.max(maximum, 0)
    # For a padding sequence, highest is -inf, and -inf - (-inf) would be NaN.
    highest = tl.where(highest == -float("inf"), 0.0, highest)
    sink_weight = 0.0
    if sinks is not None:
        sink = tl.load(sinks + head) * 1.4426950408889634
        highest = tl.maximum(highest, sink)
        sink_weight = tl.exp2(sink - highest)
    weight = tl.where(used, tl.exp2(maximum - highest), 0.0)
    numerators = tl.load(
        partial_out + (row * splits + split)[:, None] * head_dim + dim[None, :],
        mask=used[:, None] & dim_mask[None, :],
        other=0.0,
    )
    denominator = tl.sum(total * weight, 0) + sink_weight
    result = tl.sum(numerators * weight[:, None], 0) / tl.where(denominator == 0.0, 1.0, denominator)
    if value_scales is not None:
        result *= tl.load(value_scales + head // group)
    tl.store(out + row * head_dim + dim, result.to(out.dtype.element_ty), mask=dim_mask)


def operand_of(query: torch.Tensor) -> tl.dtype:
    """The operand type of the tile products: the input type where compiled. Triton's interpreter stores bfloat16 as
    integer bits and would multiply those, so there it is float32.
    """
    if not launch.is_compiled(query):
        return tl.float32
    return {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}[query.dtype]


def paged_decode_triton(
    query: torch.Tensor, kv: PagedKV, rule: AttentionRule, splits: int | None = None
) -> torch.Tensor:
    """Computes `paged_decode_reference`. `splits` (a power of two) fixes their number; None derives it from the shapes
    and the device.
    """
    sequences, q_heads, head_dim = query.shape
    block_size, kv_heads = kv.keys.shape[1], kv.keys.shape[2]
    out = launch.empty((sequences, q_heads, head_dim), query.dtype, query.device)
    if sequences == 0:
        return out
    device = launch.device_of(query)
    dims = max(16, next_power_of_2(head_dim))
    config = config_of(device.architecture, dims, fp8=kv.keys.dtype == FP8)
    if splits is None:
        most_tokens = kv.tables.shape[1] * block_size
        if rule.window is not None:
            most_tokens = min(most_tokens, rule.window + config.tile)
        splits = splits_for(sequences, kv_heads, most_tokens, device.multiprocessors)
    numerators, maxima, sums = out, None, None
    if splits > 1:
        numerators = launch.empty((sequences, q_heads, splits, head_dim), torch.float32, query.device)
        maxima, sums = (launch.empty((sequences, q_heads, splits), torch.float32, query.device) for _ in range(2))
    group, operand = q_heads // kv_heads, operand_of(query)
    fp8 = kv.keys.dtype == FP8 and operand in (tl.float16, tl.bfloat16)
    launch.launch(
        _attend_split, (sequences, kv_heads, splits),
        (
            query, kv.keys, kv.values, kv.tables, kv.contexts, kv.key_scales, kv.value_scales, rule.sinks,
            numerators, maxima, sums,
            rule.scale_for(head_dim) * LOG2_E, (rule.softcap or 0.0) * LOG2_E, rule.window or 0,
            *query.stride()[:2], *kv.keys.stride()[:3], *kv.values.stride()[:3], kv.tables.stride(0),
        ),
        q_heads=q_heads, group=group, splits=splits, head_dim=head_dim, block_size=block_size,
        rows=max(MIN_ROWS, next_power_of_2(group)), dims=dims, tile=config.tile,
        capped=rule.softcap is not None, windowed=rule.window is not None, operand=tl.float16 if fp8 else operand, fp8=fp8,
        num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
    if splits > 1:
        launch.launch(
            _merge_splits, (sequences * q_heads,),
            (numerators, maxima, sums, kv.value_scales, rule.sinks, out),
            q_heads=q_heads, group=group, splits=splits, head_dim=head_dim, dims=dims, num_warps=4,
        )  # fmt: skip
    return out

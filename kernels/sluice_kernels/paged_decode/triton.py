"""Paged decode attention in Triton: split-KV, with all query heads of a key-value head packed into one tile.

There are two launches. In the first, one program per (sequence, key-value head, split) runs an online softmax over its
share of the context. The second merges the splits (Flash-Decoding). The grid depends on shapes only, never on lengths,
so that both launches fit into a CUDA graph; a program with an empty share returns at once.

Decode is bound by memory traffic of keys and values. Packing the group's query rows into one tile reads each key and
value only once (arXiv 2511.11581 calls the tiles Q-blocks).
"""

import torch
import triton
import triton.language as tl

LOG2_E = 1.4426950408889634
TILE_TOKENS = 64
MIN_ROWS = 16  # tl.dot's smallest tile
MAX_SPLITS = 16
TOKENS_PER_SPLIT = 256  # a shorter split costs more to merge than it gains


@triton.jit
def _attend_split(  # type: ignore[no-untyped-def]
    query,  # [sequences, q_heads, head_dim]
    key_cache,  # [num_blocks, block_size, kv_heads, head_dim]
    value_cache,  # [num_blocks, block_size, kv_heads, head_dim]
    block_tables,  # [sequences, max_blocks]
    context_lens,  # [sequences]
    partial_out,  # [sequences, q_heads, splits, head_dim] float32: softmax numerator, scaled by its own maximum
    partial_max,  # [sequences, q_heads, splits] float32: that maximum, as an exponent of two
    partial_sum,  # [sequences, q_heads, splits] float32: softmax denominator
    scale_log2,
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
    operand: tl.constexpr,
):
    sequence = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    context = tl.load(context_lens + sequence)
    share = tl.cdiv(tl.cdiv(context, splits), tile) * tile
    start = split * share
    end = tl.minimum(start + share, context)

    row = tl.arange(0, rows)
    dim = tl.arange(0, dims)
    head = kv_head * group + row
    row_mask = row < group
    dim_mask = dim < head_dim
    slot = (sequence * q_heads + head) * splits + split
    if start >= end:
        # An empty share has weight 0 in the merge; its numerator is never read.
        tl.store(partial_max + slot, tl.full([rows], -float("inf"), tl.float32), mask=row_mask)
        tl.store(partial_sum + slot, tl.zeros([rows], tl.float32), mask=row_mask)
        return

    q = tl.load(
        query + sequence * query_stride_sequence + head[:, None] * query_stride_head + dim[None, :],
        mask=row_mask[:, None] & dim_mask[None, :],
        other=0.0,
    ).to(operand)
    maximum = tl.full([rows], -float("inf"), tl.float32)
    total = tl.zeros([rows], tl.float32)
    acc = tl.zeros([rows, dims], tl.float32)
    token = tl.arange(0, tile)
    for offset in range(start, end, tile):
        position = offset + token
        valid = position < end
        block = tl.load(block_tables + sequence * table_stride + position // block_size, mask=valid, other=0)
        block = block.to(tl.int64)
        inside = position % block_size
        kv_mask = valid[:, None] & dim_mask[None, :]
        key_at = block * key_stride_block + inside * key_stride_token + kv_head * key_stride_head
        k = tl.load(key_cache + key_at[:, None] + dim[None, :], mask=kv_mask, other=0.0).to(operand)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2
        scores = tl.where(valid[None, :], scores, -float("inf"))
        new_maximum = tl.maximum(maximum, tl.max(scores, 1))
        weights = tl.exp2(scores - new_maximum[:, None])
        shrink = tl.exp2(maximum - new_maximum)
        value_at = block * value_stride_block + inside * value_stride_token + kv_head * value_stride_head
        v = tl.load(value_cache + value_at[:, None] + dim[None, :], mask=kv_mask, other=0.0).to(operand)
        acc = acc * shrink[:, None] + tl.dot(weights.to(operand), v, input_precision="ieee")
        total = total * shrink + tl.sum(weights, 1)
        maximum = new_maximum

    tl.store(partial_out + slot[:, None] * head_dim + dim[None, :], acc, mask=row_mask[:, None] & dim_mask[None, :])
    tl.store(partial_max + slot, maximum, mask=row_mask)
    tl.store(partial_sum + slot, total, mask=row_mask)


@triton.jit
def _merge_splits(  # type: ignore[no-untyped-def]
    partial_out,  # [sequences, q_heads, splits, head_dim] float32
    partial_max,  # [sequences, q_heads, splits] float32
    partial_sum,  # [sequences, q_heads, splits] float32
    out,  # [sequences, q_heads, head_dim]
    splits: tl.constexpr,
    head_dim: tl.constexpr,
    dims: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)  # sequence × q_heads + head
    split = tl.arange(0, splits)
    dim = tl.arange(0, dims)
    dim_mask = dim < head_dim
    maximum = tl.load(partial_max + row * splits + split)
    total = tl.load(partial_sum + row * splits + split)
    highest = tl.max(maximum, 0)
    used = total > 0.0
    # For a padding slot, highest is -inf, and -inf - (-inf) would be NaN.
    weight = tl.where(used, tl.exp2(maximum - tl.where(highest == -float("inf"), 0.0, highest)), 0.0)
    numerators = tl.load(
        partial_out + (row * splits + split)[:, None] * head_dim + dim[None, :],
        mask=used[:, None] & dim_mask[None, :],
        other=0.0,
    )
    denominator = tl.sum(total * weight, 0)
    result = tl.sum(numerators * weight[:, None], 0) / tl.where(denominator == 0.0, 1.0, denominator)
    tl.store(out + row * head_dim + dim, result.to(out.dtype.element_ty), mask=dim_mask)


def _operand(query: torch.Tensor) -> tl.dtype:
    """Returns the operand type of the tile products, which is the input type on CUDA and float32 elsewhere.

    Triton's interpreter stores bfloat16 as integer bits and would multiply those.
    """
    if not query.is_cuda:
        return tl.float32
    return {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}[query.dtype]


def splits_for(sequences: int, kv_heads: int, most_tokens: int, programs: int) -> int:
    """Returns the number of splits (a power of two) that fills `programs` slots of the device, from shapes only."""
    wanted = triton.cdiv(programs, max(1, sequences * kv_heads))
    useful = triton.cdiv(most_tokens, TOKENS_PER_SPLIT)
    return int(triton.next_power_of_2(max(1, min(wanted, useful, MAX_SPLITS))))


def paged_decode_triton(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
    splits: int | None = None,
) -> torch.Tensor:
    """Computes `paged_decode_reference` with the same shapes. The last dimension of every input must be contiguous.

    `splits` (a power of two) fixes the number of splits; None derives it from the shapes and the device.
    """
    sequences, q_heads, head_dim = query.shape
    block_size, kv_heads = key_cache.shape[1], key_cache.shape[2]
    out = torch.empty((sequences, q_heads, head_dim), dtype=query.dtype, device=query.device)
    if sequences == 0:
        return out
    if splits is None:
        # Two programs per multiprocessor hide each other's load latency; the interpreter needs only one.
        programs = 2 * torch.cuda.get_device_properties(query.device).multi_processor_count if query.is_cuda else 1
        splits = splits_for(sequences, kv_heads, block_tables.shape[1] * block_size, programs)
    partial_out = torch.empty((sequences, q_heads, splits, head_dim), dtype=torch.float32, device=query.device)
    partial_max = torch.empty((sequences, q_heads, splits), dtype=torch.float32, device=query.device)
    partial_sum = torch.empty_like(partial_max)
    group = q_heads // kv_heads
    dims = max(16, triton.next_power_of_2(head_dim))
    _attend_split[(sequences, kv_heads, splits)](
        query, key_cache, value_cache, block_tables, context_lens, partial_out, partial_max, partial_sum,
        scale * LOG2_E,
        query.stride(0), query.stride(1),
        key_cache.stride(0), key_cache.stride(1), key_cache.stride(2),
        value_cache.stride(0), value_cache.stride(1), value_cache.stride(2),
        block_tables.stride(0),
        q_heads=q_heads, group=group, splits=splits, head_dim=head_dim, block_size=block_size,
        rows=max(MIN_ROWS, triton.next_power_of_2(group)), dims=dims, tile=TILE_TOKENS,
        operand=_operand(query),
        num_warps=4, num_stages=3,
    )  # fmt: skip
    _merge_splits[(sequences * q_heads,)](
        partial_out, partial_max, partial_sum, out, splits=splits, head_dim=head_dim, dims=dims
    )
    return out

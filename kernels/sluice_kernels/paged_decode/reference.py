"""Paged decode attention in plain torch: the specification against which the Triton kernel is tested.

The code favours readability over speed; the engine's CPU path has its own vectorised attention.
"""

import torch


def paged_decode_reference(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
) -> torch.Tensor:
    """Computes attention of one new token per sequence over that sequence's cached keys and values.

    query [sequences, q_heads, head_dim]; key_cache, value_cache [num_blocks, block_size, kv_heads, head_dim];
    block_tables [sequences, max_blocks] int32, where entries at or beyond ceil(context/block_size) are never read;
    context_lens [sequences] int32, including the new token, 0 for a padding slot.

    Returns [sequences, q_heads, head_dim] in the query's dtype, zeros for padding slots. q_heads is a multiple of
    kv_heads; query head h uses key-value head h // (q_heads / kv_heads). Sums are in float32.
    """
    sequences, q_heads, head_dim = query.shape
    block_size, kv_heads = key_cache.shape[1], key_cache.shape[2]
    group = q_heads // kv_heads
    out = torch.zeros_like(query)
    for row in range(sequences):
        context = int(context_lens[row])
        if context == 0:
            continue
        blocks = block_tables[row, : -(-context // block_size)].long()
        keys = key_cache[blocks].reshape(-1, kv_heads, head_dim)[:context].float()
        values = value_cache[blocks].reshape(-1, kv_heads, head_dim)[:context].float()
        grouped = query[row].float().reshape(kv_heads, group, head_dim)
        scores = torch.einsum("hgd,nhd->hgn", grouped, keys) * scale
        out[row] = torch.einsum("hgn,nhd->hgd", scores.softmax(-1), values).reshape(q_heads, head_dim).to(query.dtype)
    return out

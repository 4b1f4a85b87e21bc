"""Attention over the paged KV cache, in the place of transformers' own.

transformers calls a registered function in every layer and hands through whatever keyword arguments `forward` got;
ours get the step's `Batch` and the `KVCache`. The name has no mask function registered, so transformers builds no
mask and causality is ours. No loop over sequences: rows come grouped (`batch.py`), each group is one gather of its
blocks and one batched attention.
"""

from collections.abc import Callable

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from sluice_engine.model.batch import Batch, RowGroup
from sluice_engine.model.errors import ModelInvalid
from sluice_engine.model.kv import KVCache

NAME = "sluice"  # a name that begins with "flash" would make transformers look for flash attention

# (query [R, Hq, D], key_cache, value_cache [blocks, block_size, Hkv, D], group, scale, window) → [R, Hq, D]
DecodeAttention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, RowGroup, float, int | None], torch.Tensor]


def gathered_decode(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    group: RowGroup,
    scale: float,
    window: int | None,
) -> torch.Tensor:
    """One token per row: query [R, Hq, D] → [R, Hq, D], over gathered blocks. The query heads of a KV head become
    its query rows, so that keys and values are not repeated for grouped-query attention."""
    rows, heads, dim = query.shape
    kv_heads = key_cache.shape[2]
    keys = _gather(key_cache, group.block_tables)
    values = _gather(value_cache, group.block_tables)
    mask = group.mask(window, key_cache.shape[1], query.dtype)
    out = scaled_dot_product_attention(
        query.view(rows, kv_heads, heads // kv_heads, dim), keys, values, attn_mask=mask, scale=scale
    )
    return out.reshape(rows, heads, dim)


def gathered_chunks(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    group: RowGroup,
    scale: float,
    window: int | None,
) -> torch.Tensor:
    """Prompt chunks: query [tokens, Hq, D] → [tokens, Hq, D], padded to [R, Q] inside."""
    _, heads, dim = query.shape
    if group.padded_index is None:
        padded = query
    else:
        padded = query.new_zeros(group.rows * group.longest, heads, dim)
        padded.index_copy_(0, group.padded_index, query)
    out = scaled_dot_product_attention(
        padded.view(group.rows, group.longest, heads, dim).transpose(1, 2),
        _gather(key_cache, group.block_tables),
        _gather(value_cache, group.block_tables),
        attn_mask=group.mask(window, key_cache.shape[1], query.dtype),
        scale=scale,
        enable_gqa=heads != key_cache.shape[2],
    )
    out = out.transpose(1, 2).reshape(group.rows * group.longest, heads, dim)
    return out if group.padded_index is None else out.index_select(0, group.padded_index)


def _gather(cache: torch.Tensor, block_tables: torch.Tensor) -> torch.Tensor:
    """Whole blocks of each row, [R, Hkv, N·block_size, D] (a view of [R, N·block_size, Hkv, D])."""
    blocks, size, heads, dim = cache.shape
    rows, count = block_tables.shape
    picked = cache.view(blocks, size * heads * dim).index_select(0, block_tables.view(-1))
    return picked.view(rows, count * size, heads, dim).transpose(1, 2)


class PagedAttention:
    """The function that transformers calls. `decode` is the seam: another backend puts its kernel there."""

    def __init__(self, decode: DecodeAttention = gathered_decode) -> None:
        self.decode = decode

    def __call__(
        self,
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        scaling: float | None = None,
        sliding_window: int | None = None,
        softcap: float | None = None,
        s_aux: torch.Tensor | None = None,
        sluice_batch: Batch | None = None,
        sluice_cache: KVCache | None = None,
        **_: object,
    ) -> tuple[torch.Tensor, None]:
        """query [1, Hq, T, D], key and value [1, Hkv, T, D] → ([1, T, Hq, D], None). Writes KV, then attends.

        Raises ModelInvalid for attention that this backend does not compute.
        """
        if softcap is not None or s_aux is not None:
            raise ModelInvalid("This model's attention has a soft cap or sinks, which this engine does not compute.")
        if sluice_batch is None or sluice_cache is None:
            raise ModelInvalid("This model does not hand forward's keyword arguments to its attention layers.")
        keys, values = sluice_cache.layers[module.layer_idx]
        _, kv_heads, _, dim = key.shape
        keys.view(-1, kv_heads, dim).index_copy_(0, sluice_batch.slot_mapping, key.transpose(1, 2)[0])
        values.view(-1, kv_heads, dim).index_copy_(0, sluice_batch.slot_mapping, value.transpose(1, 2)[0])
        flat = query.transpose(1, 2)[0]
        scale = scaling if scaling is not None else flat.shape[-1] ** -0.5
        parts = [
            (self.decode if group.longest == 1 else gathered_chunks)(
                flat[group.first : group.first + group.tokens], keys, values, group, scale, sliding_window
            )
            for group in sluice_batch.groups
        ]
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).unsqueeze(0), None


def register() -> None:
    """Make `attn_implementation="sluice"` known to transformers. Idempotent."""
    AttentionInterface.register(NAME, PagedAttention())

"""Decode attention by the paged kernel, for models whose layers transformers' modules run."""

import torch

from sluice_engine.model.attention import Rule, gathered_decode
from sluice_engine.model.batch import RowGroup
from sluice_kernels.paged_decode import AttentionRule, PagedKV, can_use, paged_decode

_ANY_ARCHITECTURE = 80  # only fp8 caches depend on it, and this engine has none


def kernel_decode(
    query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, group: RowGroup, rule: Rule
) -> torch.Tensor:
    """Decode by the paged kernel, one token per row, without a gather. Shapes that the kernel does not support use
    `gathered_decode`.
    """
    heads_per_kv_head = query.shape[1] // key_cache.shape[2]
    if can_use(query.shape[2], heads_per_kv_head, query.dtype, key_cache.dtype, _ANY_ARCHITECTURE) is not None:
        return gathered_decode(query, key_cache, value_cache, group, rule)
    tables, lengths = group.block_tables.to(torch.int32), group.context_lens.to(torch.int32)
    kv = PagedKV(key_cache, value_cache, tables, lengths)
    return paged_decode(query, kv, AttentionRule(rule.scale, rule.window, rule.softcap))

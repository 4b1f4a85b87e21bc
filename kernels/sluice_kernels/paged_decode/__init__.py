"""Decode attention over paged keys and values behind one public function: Triton on CUDA, plain torch elsewhere."""

import torch

from sluice_kernels import arguments, launch
from sluice_kernels.paged import AttentionRule, PagedKV, can_attend, check_attention
from sluice_kernels.paged_decode.reference import paged_decode_reference

__all__ = ["AttentionRule", "PagedKV", "can_use", "paged_decode", "paged_decode_unchecked"]


def can_use(head_dim: int, group: int, dtype: torch.dtype, cache_dtype: torch.dtype, architecture: int) -> str | None:
    """None if the kernel supports this, else the reason. `group`: query heads per key-value head; `architecture` is 90
    for sm_90.
    """
    return can_attend("paged_decode", head_dim, group, (dtype, cache_dtype), architecture)


def paged_decode(query: torch.Tensor, kv: PagedKV, rule: AttentionRule) -> torch.Tensor:
    """Computes attention of one new token per sequence over that sequence's context.

    query [sequences, q_heads, head_dim]. Returns the same shape in the query's dtype, zeros for a padding sequence. On
    CUDA no data is copied to the host. Raises ValueError for an argument that does not match.
    """
    check_attention("paged_decode", query, kv, rule)
    arguments.check_shape("kv.tables", kv.tables, "[sequences, max_blocks]", query.shape[0], None)
    return paged_decode_unchecked(query, kv, rule)


def paged_decode_unchecked(query: torch.Tensor, kv: PagedKV, rule: AttentionRule) -> torch.Tensor:
    """As `paged_decode`, of arguments like some that were checked: the checks take as long as the launch."""
    if launch.is_compiled(query):
        # Imported lazily: the reference must work without triton.
        from sluice_kernels.paged_decode.triton import paged_decode_triton

        return paged_decode_triton(query, kv, rule)
    return paged_decode_reference(query, kv, rule)

"""Attention of prompt chunks and drafted tokens over paged keys and values: Triton on CUDA, plain torch elsewhere."""

import torch

from sluice_kernels import arguments, launch
from sluice_kernels.paged import AttentionRule, PagedKV, can_attend, check_attention
from sluice_kernels.paged_prefill.reference import paged_prefill_reference

__all__ = ["AttentionRule", "PagedKV", "can_use", "paged_prefill", "paged_prefill_unchecked"]


def can_use(head_dim: int, group: int, dtype: torch.dtype, cache_dtype: torch.dtype, architecture: int) -> str | None:
    """None if the kernel supports this, else the reason. `group`: query heads per key-value head; `architecture` is 90
    for sm_90.
    """
    return can_attend("paged_prefill", head_dim, group, (dtype, cache_dtype), architecture)


def paged_prefill(query: torch.Tensor, starts: torch.Tensor, kv: PagedKV, rule: AttentionRule) -> torch.Tensor:
    """Computes causal attention of the newest tokens of each sequence over its context.

    query [tokens, q_heads, head_dim], ragged: sequence i has rows starts[i] to starts[i + 1], its newest token last;
    starts [sequences + 1] int32 begins with 0. Returns query's shape and dtype; rows from starts[-1] on are padding and
    unspecified. On CUDA no data is copied to the host. Raises ValueError for an argument that does not match.
    """
    check_attention("paged_prefill", query, kv, rule)
    arguments.check_shape("starts", starts, "[sequences + 1]", kv.tables.shape[0] + 1)
    arguments.check_dtype("starts", starts, torch.int32)
    arguments.check_contiguous("starts", starts)
    arguments.check_device(query, starts=starts)
    return paged_prefill_unchecked(query, starts, kv, rule)


def paged_prefill_unchecked(
    query: torch.Tensor, starts: torch.Tensor, kv: PagedKV, rule: AttentionRule
) -> torch.Tensor:
    """As `paged_prefill`, of arguments like some that were checked: the checks take as long as the launch."""
    if launch.is_compiled(query):
        from sluice_kernels.paged_prefill.triton import paged_prefill_triton

        return paged_prefill_triton(query, starts, kv, rule)
    return paged_prefill_reference(query, starts, kv, rule)

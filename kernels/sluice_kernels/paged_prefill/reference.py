"""Paged prefill attention in plain torch: the specification of the kernel."""

from itertools import pairwise

import torch

from sluice_kernels.paged import AttentionRule, PagedKV, attend_reference


def paged_prefill_reference(
    query: torch.Tensor, starts: torch.Tensor, kv: PagedKV, rule: AttentionRule
) -> torch.Tensor:
    """Causal attention of the newest tokens of each sequence over its context.

    query [tokens, q_heads, head_dim], ragged: sequence i has rows starts[i] to starts[i + 1]; starts [sequences + 1]
    int32 begins with 0. The last row of a sequence is its newest token. Returns query's shape and dtype; rows from
    starts[-1] on are padding, which is zero here and unspecified in the kernel.
    """
    out = torch.zeros_like(query)
    bounds = starts.tolist()
    for sequence, (start, end) in enumerate(pairwise(bounds)):
        if end > start:
            out[start:end] = attend_reference(query[start:end], kv, rule, sequence)
    return out

"""Paged decode attention in plain torch: the specification against which the Triton kernel is tested.

The code favours readability over speed; the engine's CPU path has its own vectorised attention.
"""

import torch

from sluice_kernels.paged import AttentionRule, PagedKV, attend_reference


def paged_decode_reference(query: torch.Tensor, kv: PagedKV, rule: AttentionRule) -> torch.Tensor:
    """Attention of one new token per sequence over its context: query [sequences, q_heads, head_dim] → the same shape
    and dtype, zeros for a padding sequence.
    """
    out = torch.zeros_like(query)
    for sequence, context in enumerate(kv.contexts.tolist()):
        if context > 0:
            out[sequence] = attend_reference(query[sequence : sequence + 1], kv, rule, sequence)[0]
    return out

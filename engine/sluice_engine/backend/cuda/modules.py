"""Kernels inside transformers' modules, for models that `recognise` does not know: attention and norms are swapped."""

import torch
from torch.nn.functional import pad

from sluice_engine.backend.cuda.attention import Attention
from sluice_engine.model.attention import GroupAttention, PagedAttention, Rule, set_attention
from sluice_engine.model.batch import RowGroup
from sluice_engine.model.fusion import RMSNorm, fuse
from sluice_engine.model.introspection import Structure
from sluice_kernels import rms_norm
from sluice_kernels.paged import AttentionRule, PagedKV

_ANY_ARCHITECTURE = 80  # only fp8 depends on it, and these models have none


class KernelNorm(torch.nn.Module):
    """The RMS norm kernel in place of torch's."""

    def __init__(self, plain: RMSNorm) -> None:
        super().__init__()
        self.weight, self._epsilon = plain.weight, plain.epsilon

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        """[..., D] → [..., D]"""
        rows = tensor.reshape(-1, tensor.shape[-1])
        return rms_norm.rms_norm(rows, self.weight, self._epsilon).view(tensor.shape)


def swap_modules(module: torch.nn.Module, structure: Structure, attention: Attention) -> None:
    """Fuse the module's layers, give it this attention, and swap its RMS norms for the kernel where it supports them."""
    set_attention((call.module for call in structure.calls), paged_attention(attention))
    fuse(module, structure, packs=False)
    for name, child in list(module.named_modules()):
        if isinstance(child, RMSNorm) and _supports(child.weight):
            module.set_submodule(name, KernelNorm(child))


def paged_attention(attention: Attention) -> PagedAttention:
    """The function that transformers calls, with this attention."""
    return PagedAttention(_decode(attention), chunks=_chunks(attention))


def _decode(attention: Attention) -> GroupAttention:
    """Single tokens: query [R, Hq, D] → the same shape."""

    def decode(
        query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, group: RowGroup, rule: Rule
    ) -> torch.Tensor:
        return attention.decode(query, _paged(key_cache, value_cache, group), _rule(rule))

    return decode


def _chunks(attention: Attention) -> GroupAttention:
    """Prompt chunks, ragged: query [tokens, Hq, D] → the same shape."""

    def chunks(
        query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, group: RowGroup, rule: Rule
    ) -> torch.Tensor:
        counts = (group.query_positions >= 0).sum(1)
        starts = pad(counts.cumsum(0), (1, 0)).to(torch.int32)
        return attention.prefill(query, starts, _paged(key_cache, value_cache, group), _rule(rule))

    return chunks


def _supports(weight: torch.Tensor) -> bool:
    return rms_norm.can_use(weight.shape[0], weight.dtype, _ANY_ARCHITECTURE) is None


def _paged(key_cache: torch.Tensor, value_cache: torch.Tensor, group: RowGroup) -> PagedKV:
    tables, contexts = group.block_tables.to(torch.int32), group.context_lens.to(torch.int32)
    return PagedKV(key_cache, value_cache, tables, contexts)


def _rule(rule: Rule) -> AttentionRule:
    return AttentionRule(rule.scale, rule.window, rule.softcap)

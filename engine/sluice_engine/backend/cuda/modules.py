"""Kernels inside transformers' modules, for models that `recognise` does not know: attention and norms are swapped."""

from collections.abc import Callable

import torch
from torch.nn.functional import pad

from sluice_engine.model.attention import PagedAttention, Rule, gathered_chunks, gathered_decode, set_attention
from sluice_engine.model.batch import RowGroup
from sluice_engine.model.fusion import RMSNorm, fuse
from sluice_engine.model.introspection import Structure
from sluice_kernels import paged_decode, paged_prefill, rms_norm
from sluice_kernels.paged import AttentionRule, PagedKV

_ANY_ARCHITECTURE = 80  # only fp8 depends on it, and these models have none

CanUse = Callable[[int, int, torch.dtype, torch.dtype, int], str | None]


class KernelNorm(torch.nn.Module):
    """The RMS norm kernel in place of torch's."""

    def __init__(self, plain: RMSNorm) -> None:
        super().__init__()
        self.weight, self._epsilon = plain.weight, plain.epsilon

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        """[..., D] → [..., D]"""
        rows = tensor.reshape(-1, tensor.shape[-1])
        return rms_norm.rms_norm(rows, self.weight, self._epsilon).view(tensor.shape)


def swap_modules(module: torch.nn.Module, structure: Structure) -> None:
    """Fuse the module's layers, and swap its attention and its RMS norms for the kernels where they support them."""
    set_attention((call.module for call in structure.calls), PagedAttention(kernel_decode, chunks=kernel_chunks))
    fuse(module, structure, packs=False)
    for name, child in list(module.named_modules()):
        if isinstance(child, RMSNorm) and _supports(child.weight):
            module.set_submodule(name, KernelNorm(child))


def kernel_decode(
    query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, group: RowGroup, rule: Rule
) -> torch.Tensor:
    """Decode by the paged kernel, one token per row, without a gather. Shapes that the kernel does not support use
    `gathered_decode`.
    """
    if _refused(paged_decode.can_use, query, key_cache):
        return gathered_decode(query, key_cache, value_cache, group, rule)
    return paged_decode.paged_decode(query, _paged(key_cache, value_cache, group), _rule(rule))


def kernel_chunks(
    query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, group: RowGroup, rule: Rule
) -> torch.Tensor:
    """Prompt chunks by the paged kernel, ragged: query [tokens, Hq, D] → the same shape. Shapes that the kernel does not
    support use `gathered_chunks`.
    """
    if _refused(paged_prefill.can_use, query, key_cache):
        return gathered_chunks(query, key_cache, value_cache, group, rule)
    counts = (group.query_positions >= 0).sum(1)
    starts = pad(counts.cumsum(0), (1, 0)).to(torch.int32)
    return paged_prefill.paged_prefill(query, starts, _paged(key_cache, value_cache, group), _rule(rule))


def _supports(weight: torch.Tensor) -> bool:
    return rms_norm.can_use(weight.shape[0], weight.dtype, _ANY_ARCHITECTURE) is None


def _refused(can_use: CanUse, query: torch.Tensor, key_cache: torch.Tensor) -> bool:
    group = query.shape[1] // key_cache.shape[2]
    return can_use(query.shape[2], group, query.dtype, key_cache.dtype, _ANY_ARCHITECTURE) is not None


def _paged(key_cache: torch.Tensor, value_cache: torch.Tensor, group: RowGroup) -> PagedKV:
    tables, contexts = group.block_tables.to(torch.int32), group.context_lens.to(torch.int32)
    return PagedKV(key_cache, value_cache, tables, contexts)


def _rule(rule: Rule) -> AttentionRule:
    return AttentionRule(rule.scale, rule.window, rule.softcap)

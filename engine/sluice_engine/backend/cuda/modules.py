"""Kernels inside transformers' modules, for models that `recognise` does not know: attention, norms and mixtures of experts
are swapped.
"""

import logging

import torch

from sluice_engine.backend.cuda.attention import Attention
from sluice_engine.backend.cuda.feed_forward.experts import Experts, compile_experts, experts_of, experts_output
from sluice_engine.backend.cuda.ops import KERNELS, Ops
from sluice_engine.backend.cuda.ops.sharded import sharded
from sluice_engine.backend.cuda.step_tensors import GroupTensors, group_tensors
from sluice_engine.backend.parallel.group import Group
from sluice_engine.model.attention import GroupAttention, PagedAttention, Rule, set_attention
from sluice_engine.model.batch import RowGroup
from sluice_engine.model.decoder_parts import mixture_of_experts
from sluice_engine.model.fusion import RMSNorm, fuse
from sluice_engine.model.introspection import Structure
from sluice_kernels import rms_norm
from sluice_kernels.paged import AttentionRule, PagedKV

_ANY_ARCHITECTURE = 80  # only fp8 depends on it, and these models have none
_TRIED = 16  # random rows on which a mixture of experts is compared
_CLOSE = {torch.float32: 1e-4, torch.bfloat16: 0.05, torch.float16: 0.01}  # relative to the largest output
_log = logging.getLogger(__name__)


class KernelNorm(torch.nn.Module):
    """The RMS norm kernel in place of torch's."""

    def __init__(self, plain: RMSNorm) -> None:
        super().__init__()
        self.weight, self._epsilon = plain.weight, plain.epsilon

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        """[..., D] → [..., D]"""
        rows = tensor.reshape(-1, tensor.shape[-1])
        return rms_norm.rms_norm(rows, self.weight, self._epsilon).view(tensor.shape)


class KernelExperts(torch.nn.Module):
    """The kernels in place of transformers' mixture of experts."""

    def __init__(self, layer: Experts, ops: Ops) -> None:
        super().__init__()
        self.layer, self._ops = layer, ops

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        """[..., hidden] → [..., hidden]"""
        return experts_output(self.layer, tensor.reshape(-1, tensor.shape[-1]), self._ops).view(tensor.shape)


def swap_modules(
    module: torch.nn.Module, structure: Structure, attention: Attention, group: Group | None = None
) -> None:
    """Fuse the module's layers, give it this attention, and swap its mixtures of experts and its RMS norms for the kernels
    where they support them. `group`: the ranks that share the module.
    """
    _swap_experts(module, KERNELS if group is None else sharded(KERNELS, group, module.config.vocab_size))
    set_attention((call.module for call in structure.calls), paged_attention(attention))
    fuse(module, structure, packs=False)
    for name, child in list(module.named_modules()):
        if isinstance(child, RMSNorm) and _supports(child.weight):
            module.set_submodule(name, KernelNorm(child))


@torch.inference_mode()
def _swap_experts(module: torch.nn.Module, ops: Ops) -> None:
    swapped = 0
    for name, child in list(module.named_modules()):
        parts = mixture_of_experts(child)
        if parts is None or parts.shared is not None:  # a shared expert's products are merged by `fuse`
            continue
        try:
            kernel = KernelExperts(experts_of(parts), ops)
        except ValueError as error:
            _log.info("%s is run by transformers' module: the kernels do not have %s", name, error)
            continue
        if _is_close(kernel, child, parts.router.weight):
            module.set_submodule(name, kernel)
            swapped += 1
    if swapped:
        _log.info("%d mixtures of experts are run by the kernels", swapped)


def compile_module_experts(module: torch.nn.Module) -> None:
    """Compile the kernels of the module's mixtures of experts, so that no step does."""
    compile_experts(child.layer for child in module.modules() if isinstance(child, KernelExperts))


def _is_close(kernel: KernelExperts, child: torch.nn.Module, weight: torch.Tensor) -> bool:
    """Whether both have the same outputs on random rows."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(1, _TRIED, weight.shape[1], generator=generator).to(weight.device, weight.dtype)
    want = child(rows)
    if not isinstance(want, torch.Tensor) or weight.dtype not in _CLOSE:
        return False
    return bool(((kernel(rows) - want).abs() <= _CLOSE[weight.dtype] * want.abs().max()).all())


def paged_attention(attention: Attention) -> PagedAttention:
    """The function that transformers calls, with this attention."""
    return PagedAttention(_decode(attention), chunks=_chunks(attention))


def _decode(attention: Attention) -> GroupAttention:
    """Single tokens: query [R, Hq, D] → the same shape."""

    def decode(
        query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, group: RowGroup, rule: Rule
    ) -> torch.Tensor:
        kv = _paged(key_cache, value_cache, group_tensors(group))
        return attention.decode(_by_token(query), kv, _rule(rule))

    return decode


def _chunks(attention: Attention) -> GroupAttention:
    """Prompt chunks, ragged: query [tokens, Hq, D] → the same shape."""

    def chunks(
        query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, group: RowGroup, rule: Rule
    ) -> torch.Tensor:
        tensors = group_tensors(group)
        kv = _paged(key_cache, value_cache, tensors)
        return attention.prefill(_by_token(query), tensors.starts, kv, _rule(rule))

    return chunks


def _supports(weight: torch.Tensor) -> bool:
    return rms_norm.can_use(weight.shape[0], weight.dtype, _ANY_ARCHITECTURE) is None


def _by_token(query: torch.Tensor) -> torch.Tensor:
    """query [tokens, Hq, D] with one token behind the other. torch gives a single token any stride, and Triton compiles a
    kernel anew for one that is no multiple of 16.
    """
    return query.reshape(-1).view(query.shape)


def _paged(key_cache: torch.Tensor, value_cache: torch.Tensor, tensors: GroupTensors) -> PagedKV:
    return PagedKV(key_cache, value_cache, tensors.tables, tensors.contexts)


def _rule(rule: Rule) -> AttentionRule:
    return AttentionRule(rule.scale, rule.window, rule.softcap)

"""Products with int8 weights, and keys and values as 8-bit integers, as formulas over tensors."""

from typing import Any

import torch
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from sluice_engine.model.int8_entries import from_entries, to_entries

OUTLIERS, OUTLYING = 6, 5.0  # as in kernels.h


def quantised_weight(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[out, in] → integers as float [out, in] and scales [out, 1]: symmetric, one scale per output."""
    largest = weight.float().abs().amax(dim=1, keepdim=True)
    of_one = torch.full_like(largest, 127) / largest  # 127 / largest would multiply by a rounded reciprocal
    return (weight.float() * of_one).round(), largest / 127


def quantised_rows(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[..., in] → integers without their zero as float, and steps [..., 1]: 255 steps between the row's least and largest
    value and 0. The OUTLIERS largest values beyond OUTLYING mean magnitudes are left out of that range and keep their
    integer.
    """
    wide = rows.float()
    magnitude = wide.abs()
    largest, bound = magnitude.amax(dim=-1, keepdim=True), OUTLYING * magnitude.mean(dim=-1, keepdim=True)
    beyond = magnitude > bound
    order = torch.where(beyond, magnitude, -1).argsort(dim=-1, descending=True, stable=True)
    chosen = torch.zeros_like(beyond).scatter(-1, order[..., :OUTLIERS], True) & beyond
    kept = torch.where(chosen, 0, wide)
    least, most = kept.amin(dim=-1, keepdim=True).clamp_max(0), kept.amax(dim=-1, keepdim=True).clamp_min(0)
    step = (most / 255 - least / 255).maximum(largest / 2**20)
    inverse = torch.where(step > 1e-36, 1 / step, 0)
    zero = (-least * inverse).round()
    whole = (wide * inverse).round()
    return torch.where(chosen, whole, whole.clamp(-zero, 255 - zero)), step


def int8_product(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """rows [..., in], weight [out, in] → [..., out] float32."""
    (integers, steps), (weights, scales) = quantised_rows(rows), quantised_weight(weight)
    sums = (integers.double() @ weights.double().T).float()
    out = sums * scales.squeeze(1) * steps
    return out if bias is None else out + bias.float()


class _Int8(torch.nn.Module):
    """A linear layer by `int8_product`, rounded to its dtype."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """[..., in] → [..., out]"""
        return int8_product(rows, self.weight, self.bias).to(rows.dtype)


def _attend(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any, **named: Any
) -> tuple[torch.Tensor, None]:
    """Attention to keys and values as a cache of 8-bit integers has them."""
    rounded = (from_entries(to_entries(part)).to(part.dtype) for part in (key, value))
    return sdpa_attention_forward(module, query, *rounded, *rest, **named)


def as_int8(model: Any) -> Any:
    """The model with its linear layers replaced by `int8_product` and its attention by one to 8-bit integers; a tied embedding
    becomes that of the int8 head.
    """
    AttentionInterface.register("int8_entries", _attend)
    AttentionMaskInterface.register("int8_entries", sdpa_mask)
    model.set_attn_implementation("int8_entries")
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    for name, linear in [(n, m) for n, m in model.named_modules() if type(m) is torch.nn.Linear]:
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, _Int8(linear))
    if tied:
        embedding = model.get_input_embeddings()
        integers, scales = quantised_weight(embedding.weight)
        embedding.weight = torch.nn.Parameter((integers * scales).to(embedding.weight.dtype), requires_grad=False)
    return model

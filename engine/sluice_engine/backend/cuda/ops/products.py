"""The linear layers of the fused decoder: dense weights, packed ones of a quantised checkpoint, or fp8."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch.nn.functional import linear

from sluice_kernels.fp8 import quantise_rows
from sluice_kernels.grouped_weights import GroupedWeights
from sluice_kernels.w4a16 import w4a16
from sluice_kernels.w8a16 import w8a16


@dataclass(frozen=True, slots=True)
class QuantisedWeight:
    """A weight whose outputs are those of its parts, one after the other: parts differ in the order of their inputs."""

    parts: tuple[GroupedWeights, ...]
    bits: int  # 4 or 8


@dataclass(frozen=True, slots=True)
class Fp8Weight:
    """values [out, in] e4m3 times scales [out] float32, one per output."""

    values: torch.Tensor
    scales: torch.Tensor


def merged_fp8(weights: Sequence[Fp8Weight]) -> Fp8Weight:
    """One weight with the outputs of all of them."""
    return Fp8Weight(torch.cat([each.values for each in weights]), torch.cat([each.scales for each in weights]))


def merged(weights: Sequence[QuantisedWeight]) -> QuantisedWeight:
    """One weight with the outputs of all of them, which share inputs and bits. One part if they read their inputs in the
    same order.
    """
    parts = [part for weight in weights for part in weight.parts]
    first = parts[0]
    if any(not _same(part.order, first.order) or part.scales.dtype != first.scales.dtype for part in parts):
        return QuantisedWeight(tuple(parts), weights[0].bits)
    words, scales, zeros = (
        torch.cat([getattr(part, name) for part in parts], dim=1) for name in ("words", "scales", "zeros")
    )
    return QuantisedWeight((GroupedWeights(words, scales, zeros, first.order),), weights[0].bits)


def _same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    return one is other or (one is not None and other is not None and torch.equal(one, other))


Weight: TypeAlias = torch.Tensor | QuantisedWeight | Fp8Weight


def product(rows: torch.Tensor, weight: Weight, bias: torch.Tensor | None) -> torch.Tensor:
    """rows [T, in] · weightᵀ + bias → [T, out]. A quantised weight's kernel serves few rows; for more it is dequantised. Of
    an fp8 weight the rows are e4m3 too, with one scale each.
    """
    if isinstance(weight, torch.Tensor):
        return linear(rows, weight, bias)
    if isinstance(weight, Fp8Weight):
        out = _fp8_product(rows, weight)
        return out if bias is None else out + bias
    kernel = w4a16 if weight.bits == 4 else w8a16
    outputs = [kernel(rows, part) for part in weight.parts]
    out = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)
    return out if bias is None else out + bias


def _fp8_product(rows: torch.Tensor, weight: Fp8Weight) -> torch.Tensor:
    """By torch, whose product with a scale per row and output gives bfloat16."""
    values, scales = quantise_rows(rows.float())
    out = torch._scaled_mm(
        values, weight.values.t(), scale_a=scales[:, None], scale_b=weight.scales[None], out_dtype=torch.bfloat16
    )
    return out.to(rows.dtype)


@dataclass(frozen=True, slots=True)
class Product:
    """A weight [out, in] and its bias [out]."""

    weight: Weight
    bias: torch.Tensor | None


Quantised = Callable[[torch.nn.Linear], QuantisedWeight | Fp8Weight | None]


def unquantised(_: torch.nn.Linear) -> None:
    """No layer is quantised."""
    return


def product_of(linears: tuple[torch.nn.Linear, ...], quantised: Quantised) -> Product:
    """One product for all of them; their own parameters are dropped where they are copied."""
    found = [quantised(layer) for layer in linears]
    if len(linears) == 1 and found == [None]:
        return Product(linears[0].weight, linears[0].bias)
    weight = _merged(found)
    if weight is None:
        weight = torch.cat([layer.weight for layer in linears])
    bias, like = None, linears[0].weight
    if any(layer.bias is not None for layer in linears):
        bias = torch.cat([like.new_zeros(each.out_features) if each.bias is None else each.bias for each in linears])
    for layer in linears:
        for name, _ in list(layer.named_parameters(recurse=False)):
            setattr(layer, name, None)
    return Product(weight, bias)


def _merged(found: Sequence[QuantisedWeight | Fp8Weight | None]) -> Weight | None:
    """One weight of all, None if one of them is dense."""
    packed = [each for each in found if isinstance(each, QuantisedWeight)]
    if len(packed) == len(found):
        return merged(packed)
    fp8 = [each for each in found if isinstance(each, Fp8Weight)]
    return merged_fp8(fp8) if len(fp8) == len(found) else None

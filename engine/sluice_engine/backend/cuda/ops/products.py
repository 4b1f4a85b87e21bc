"""The linear layers of the fused decoder: dense weights, or packed ones of a quantised checkpoint."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import linear

from sluice_kernels.grouped_weights import GroupedWeights
from sluice_kernels.w4a16 import w4a16
from sluice_kernels.w8a16 import w8a16


@dataclass(frozen=True, slots=True)
class QuantisedWeight:
    """A weight whose outputs are those of its parts, one after the other: parts differ in the order of their inputs."""

    parts: tuple[GroupedWeights, ...]
    bits: int  # 4 or 8


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


def product(rows: torch.Tensor, weight: torch.Tensor | QuantisedWeight, bias: torch.Tensor | None) -> torch.Tensor:
    """rows [T, in] · weightᵀ + bias → [T, out]. A quantised weight's kernel serves few rows; for more it is dequantised."""
    if isinstance(weight, torch.Tensor):
        return linear(rows, weight, bias)
    kernel = w4a16 if weight.bits == 4 else w8a16
    outputs = [kernel(rows, part) for part in weight.parts]
    out = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)
    return out if bias is None else out + bias


@dataclass(frozen=True, slots=True)
class Product:
    """A weight [out, in] and its bias [out]."""

    weight: torch.Tensor | QuantisedWeight
    bias: torch.Tensor | None


Quantised = Callable[[torch.nn.Linear], QuantisedWeight | None]


def unquantised(_: torch.nn.Linear) -> QuantisedWeight | None:
    """No layer is quantised."""
    return None


def product_of(linears: tuple[torch.nn.Linear, ...], quantised: Quantised) -> Product:
    """One product for all of them; their own parameters are dropped where they are copied."""
    found = [quantised(layer) for layer in linears]
    packed = [each for each in found if each is not None]
    if len(linears) == 1 and not packed:
        return Product(linears[0].weight, linears[0].bias)
    weight = merged(packed) if len(packed) == len(linears) else torch.cat([layer.weight for layer in linears])
    bias, like = None, linears[0].weight
    if any(layer.bias is not None for layer in linears):
        bias = torch.cat([like.new_zeros(each.out_features) if each.bias is None else each.bias for each in linears])
    for layer in linears:
        for name, _ in list(layer.named_parameters(recurse=False)):
            setattr(layer, name, None)
    return Product(weight, bias)

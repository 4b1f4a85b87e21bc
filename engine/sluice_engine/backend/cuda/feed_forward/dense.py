"""The feed-forward layer that all tokens share."""

from dataclasses import dataclass

import torch

from sluice_engine.backend.cuda.ops import Ops
from sluice_engine.model.decoder_parts import DenseParts


@dataclass(frozen=True, slots=True)
class Product:
    """A weight [out, in] and its bias [out]."""

    weight: torch.Tensor
    bias: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Dense:
    """Gate and up as one product, and down."""

    gate_up: Product
    down: Product


def dense_of(parts: DenseParts) -> Dense:
    """It consumes the parts: gate's and up's own weights are dropped."""
    return Dense(merged(parts.gate_up), Product(parts.down.weight, parts.down.bias))


def dense_output(layer: Dense, rows: torch.Tensor, ops: Ops) -> torch.Tensor:
    """rows [T, hidden] → [T, hidden]."""
    activated = ops.silu_mul(ops.gate_up(rows, layer.gate_up.weight, layer.gate_up.bias))
    return ops.down(activated, layer.down.weight, layer.down.bias)


def merged(linears: tuple[torch.nn.Linear, ...]) -> Product:
    """One product for all of them; their own parameters are dropped."""
    weight = torch.cat([linear.weight for linear in linears])
    bias = None
    if any(linear.bias is not None for linear in linears):
        bias = torch.cat([weight.new_zeros(each.out_features) if each.bias is None else each.bias for each in linears])
    for linear in linears:
        for name, _ in list(linear.named_parameters(recurse=False)):
            setattr(linear, name, None)
    return Product(weight, bias)

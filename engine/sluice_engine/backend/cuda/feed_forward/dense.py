"""The feed-forward layer that all tokens share."""

from dataclasses import dataclass

import torch

from sluice_engine.backend.cuda.ops import Operation, Ops
from sluice_engine.backend.cuda.ops.products import Product, Quantised, product_of, unquantised
from sluice_engine.model.decoder_parts import DenseParts


@dataclass(frozen=True, slots=True)
class Dense:
    """Gate and up as one product, and down."""

    gate_up: Product
    down: Product


def dense_of(parts: DenseParts, quantised: Quantised = unquantised) -> Dense:
    """It consumes the parts: their own weights are dropped where they are merged or `quantised` has them."""
    return Dense(product_of(parts.gate_up, quantised), product_of((parts.down,), quantised))


def dense_output(layer: Dense, rows: torch.Tensor, ops: Ops, down: Operation) -> torch.Tensor:
    """rows [T, hidden] → [T, hidden]. `down`: the operation of the second product."""
    activated = ops.silu_mul(ops.gate_up(rows, layer.gate_up.weight, layer.gate_up.bias))
    return down(activated, layer.down.weight, layer.down.bias)

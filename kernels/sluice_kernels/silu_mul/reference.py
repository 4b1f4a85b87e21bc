"""Gated activation in plain torch: the specification of the kernel."""

from typing import Final

import torch
from torch.nn.functional import gelu, silu

from sluice_kernels.fp8 import quantise_rows

ACTIVATIONS: Final = ("silu", "gelu_tanh")


def silu_mul_reference(gate_up: torch.Tensor, activation: str) -> torch.Tensor:
    """gate_up [rows, 2 · width], the gate first → [rows, width] in its dtype: activation(gate) · up, in float32 and
    rounded once.
    """
    return _product(gate_up, activation).to(gate_up.dtype)


def silu_mul_fp8_reference(gate_up: torch.Tensor, activation: str) -> tuple[torch.Tensor, torch.Tensor]:
    """As `silu_mul_reference`, but e4m3 with one scale per row: values [rows, width], scales [rows] float32."""
    return quantise_rows(_product(gate_up, activation))


def _product(gate_up: torch.Tensor, activation: str) -> torch.Tensor:
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (silu(gate) if activation == "silu" else gelu(gate, approximate="tanh")) * up

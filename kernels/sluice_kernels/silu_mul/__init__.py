"""Gated activation, optionally quantised per row: Triton on CUDA, plain torch elsewhere."""

import torch

from sluice_kernels import arguments, launch
from sluice_kernels.fp8 import refusal
from sluice_kernels.silu_mul.configs import MOST_WIDTH
from sluice_kernels.silu_mul.reference import ACTIVATIONS, silu_mul_fp8_reference, silu_mul_reference

__all__ = ["can_use", "silu_mul", "silu_mul_fp8", "silu_mul_unchecked"]


def can_use(width: int, activation: str, dtype: torch.dtype, architecture: int, fp8: bool = False) -> str | None:
    """None if the kernel supports this, else the reason. `architecture` is 90 for sm_90."""
    if activation not in ACTIVATIONS:
        return f"silu_mul supports the activations {' and '.join(ACTIVATIONS)}, not {activation}"
    if not 1 <= width <= MOST_WIDTH:
        return f"silu_mul supports a width of 1 to {MOST_WIDTH}, not {width}"
    if dtype not in arguments.FLOATS:
        return f"silu_mul supports float32, float16 and bfloat16, not {dtype}"
    return refusal(architecture) if fp8 else None


def silu_mul(gate_up: torch.Tensor, activation: str = "silu") -> torch.Tensor:
    """Computes activation(gate) · up of gate_up [rows, 2 · width], the gate first; any row stride.

    `activation` is silu or gelu_tanh. Returns [rows, width] in gate_up's dtype. Raises ValueError for an argument that
    does not match.
    """
    _check(gate_up, activation, fp8=False)
    return silu_mul_unchecked(gate_up, activation)


def silu_mul_unchecked(gate_up: torch.Tensor, activation: str = "silu") -> torch.Tensor:
    """As `silu_mul`, of arguments like some that were checked: the checks take as long as the launch."""
    if launch.is_compiled(gate_up):
        from sluice_kernels.silu_mul.triton import silu_mul_triton

        return silu_mul_triton(gate_up, activation)
    return silu_mul_reference(gate_up, activation)


def silu_mul_fp8(gate_up: torch.Tensor, activation: str = "silu") -> tuple[torch.Tensor, torch.Tensor]:
    """As `silu_mul`, quantised: e4m3 values [rows, width] and float32 scales [rows]; value · scale is the result.

    Raises ValueError also on an architecture without fp8.
    """
    _check(gate_up, activation, fp8=True)
    if launch.is_compiled(gate_up):
        from sluice_kernels.silu_mul.triton import silu_mul_fp8_triton

        return silu_mul_fp8_triton(gate_up, activation)
    return silu_mul_fp8_reference(gate_up, activation)


def _check(gate_up: torch.Tensor, activation: str, *, fp8: bool) -> None:
    arguments.check_shape("gate_up", gate_up, "[rows, 2 · width]", None, None)
    arguments.check("gate_up", gate_up.shape[1] % 2 == 0, "an even last dimension", gate_up.shape[1])
    arguments.check_dtype("gate_up", gate_up, *arguments.FLOATS)
    arguments.check_rows("gate_up", gate_up)
    arguments.check("activation", activation in ACTIVATIONS, " or ".join(ACTIVATIONS), activation)
    architecture = launch.device_of(gate_up).architecture
    arguments.check_supported("gate_up", can_use(gate_up.shape[1] // 2, activation, gate_up.dtype, architecture, fp8))

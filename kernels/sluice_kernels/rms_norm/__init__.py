"""RMS norm, optionally of a sum and quantised per row: Triton on CUDA, plain torch elsewhere."""

import torch

from sluice_kernels import arguments, launch
from sluice_kernels.fp8 import refusal
from sluice_kernels.rms_norm.configs import MOST_WIDTH
from sluice_kernels.rms_norm.reference import rms_norm_fp8_reference, rms_norm_reference

__all__ = ["can_use", "rms_norm", "rms_norm_fp8", "rms_norm_unchecked"]


def can_use(width: int, dtype: torch.dtype, architecture: int, fp8: bool = False) -> str | None:
    """None if the kernel supports this, else the reason. `architecture` is 90 for sm_90."""
    if not 1 <= width <= MOST_WIDTH:
        return f"rms_norm supports rows of 1 to {MOST_WIDTH} elements, not {width}"
    if dtype not in arguments.FLOATS:
        return f"rms_norm supports float32, float16 and bfloat16, not {dtype}"
    return refusal(architecture) if fp8 else None


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    weight_offset: float = 0.0,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """Computes x · rsqrt(mean(x²) + eps) · (weight + weight_offset) per row, in float32 and rounded once.

    x [rows, width], any row stride; weight [width] contiguous. With a residual [rows, width], x is added to it in place
    and the rounded sum is normalised. Returns [rows, width] in x's dtype. Raises ValueError for an argument that does
    not match.
    """
    _check(x, weight, residual, fp8=False)
    return rms_norm_unchecked(x, weight, eps, weight_offset, residual)


def rms_norm_unchecked(
    x: torch.Tensor, weight: torch.Tensor, eps: float, weight_offset: float = 0.0, residual: torch.Tensor | None = None
) -> torch.Tensor:
    """As `rms_norm`, of arguments like some that were checked: the checks take as long as the launch."""
    if launch.is_compiled(x):
        from sluice_kernels.rms_norm.triton import rms_norm_triton

        return rms_norm_triton(x, weight, eps, weight_offset, residual)
    return rms_norm_reference(x, weight, eps, weight_offset, residual)


def rms_norm_fp8(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    weight_offset: float = 0.0,
    residual: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `rms_norm`, quantised: e4m3 values [rows, width] and float32 scales [rows]; value · scale is the result.

    Raises ValueError also on an architecture without fp8.
    """
    _check(x, weight, residual, fp8=True)
    if launch.is_compiled(x):
        from sluice_kernels.rms_norm.triton import rms_norm_fp8_triton

        return rms_norm_fp8_triton(x, weight, eps, weight_offset, residual)
    return rms_norm_fp8_reference(x, weight, eps, weight_offset, residual)


def _check(x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor | None, *, fp8: bool) -> None:
    arguments.check_shape("x", x, "[rows, width]", None, None)
    arguments.check_dtype("x", x, *arguments.FLOATS)
    arguments.check_rows("x", x)
    arguments.check_shape("weight", weight, "[width]", x.shape[1])
    arguments.check_dtype("weight", weight, x.dtype, torch.float32)
    arguments.check_contiguous("weight", weight)
    arguments.check_device(x, weight=weight, residual=residual)
    if residual is not None:
        arguments.check_shape("residual", residual, "[rows, width]", *x.shape)
        arguments.check_dtype("residual", residual, x.dtype)
        arguments.check_rows("residual", residual)
    arguments.check_supported("x", can_use(x.shape[1], x.dtype, launch.device_of(x).architecture, fp8))

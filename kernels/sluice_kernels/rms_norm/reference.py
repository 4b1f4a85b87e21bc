"""RMS norm in plain torch: the specification of the kernel."""

import torch

from sluice_kernels.fp8 import quantise_rows


def rms_norm_reference(
    x: torch.Tensor, weight: torch.Tensor, eps: float, weight_offset: float, residual: torch.Tensor | None
) -> torch.Tensor:
    """x [rows, width], weight [width] → [rows, width] in x's dtype: x · rsqrt(mean(x²) + eps) · (weight + weight_offset),
    in float32 and rounded once. With a residual [rows, width], x is added to it in place and the rounded sum is
    normalised.
    """
    return _normalised(x, weight, eps, weight_offset, residual).to(x.dtype)


def rms_norm_fp8_reference(
    x: torch.Tensor, weight: torch.Tensor, eps: float, weight_offset: float, residual: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `rms_norm_reference`, but e4m3 with one scale per row: values [rows, width], scales [rows] float32."""
    return quantise_rows(_normalised(x, weight, eps, weight_offset, residual))


def _normalised(
    x: torch.Tensor, weight: torch.Tensor, eps: float, weight_offset: float, residual: torch.Tensor | None
) -> torch.Tensor:
    if residual is not None:
        residual.copy_(x.float() + residual.float())
        x = residual
    values = x.float()
    scale = torch.rsqrt(values.square().mean(-1, keepdim=True) + eps)
    return values * scale * (weight.float() + weight_offset)

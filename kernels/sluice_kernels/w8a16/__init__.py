"""Weight-only int8 product: Triton on CUDA for few rows, plain torch elsewhere."""

import torch

from sluice_kernels import arguments, grouped_weights, launch
from sluice_kernels.grouped_weights import MOST_ROWS, GroupedWeights
from sluice_kernels.w8a16.reference import w8a16_reference

__all__ = ["can_use", "w8a16"]
BITS = 8


def can_use(inner: int, dtype: torch.dtype) -> str | None:
    """None if the kernel supports inputs of this size and dtype, else the reason."""
    return grouped_weights.refusal("w8a16", inner, dtype)


def w8a16(x: torch.Tensor, weights: GroupedWeights) -> torch.Tensor:
    """Computes x [rows, inner] · (value - zero) · scale with values of 8 bits; any row stride.

    Up to MOST_ROWS rows the sum is float32 and rounded once; beyond, torch multiplies by the weights rounded to x's dtype.
    Returns [rows, outputs] in that dtype. Raises ValueError for an argument that does not match.
    """
    arguments.check_shape("x", x, "[rows, inner]", None, None)
    grouped_weights.check(x, weights, BITS, can_use(x.shape[1], x.dtype))
    if x.shape[0] > MOST_ROWS:
        return grouped_weights.dequantised_product(x, weights, BITS)
    if launch.is_compiled(x):
        from sluice_kernels.w8a16.triton import w8a16_triton

        return w8a16_triton(x, weights)
    return w8a16_reference(x, weights)

"""The weight-only int4 product in plain torch: the specification of the kernel."""

import torch

from sluice_kernels.grouped_weights import GroupedWeights, product


def w4a16_reference(x: torch.Tensor, weights: GroupedWeights) -> torch.Tensor:
    """x [rows, inner], words [inner / 8, outputs] → [rows, outputs] in x's dtype: x · (value - zero) · scale, in float32
    and rounded once.
    """
    return product(x, weights, bits=4)

"""The weight-only int4 product in Triton: the configuration of the shared kernel."""

import torch

from sluice_kernels import launch
from sluice_kernels.grouped_product import MIN_ROWS, grouped_product
from sluice_kernels.grouped_weights import GroupedWeights
from sluice_kernels.integers import next_power_of_2
from sluice_kernels.w4a16.configs import config_of


def w4a16_triton(x: torch.Tensor, weights: GroupedWeights, splits: int | None = None) -> torch.Tensor:
    """Computes `w4a16_reference` for at most MOST_ROWS rows. `splits` fixes the splits of the groups."""
    rows = max(MIN_ROWS, next_power_of_2(max(1, x.shape[0])))
    return grouped_product(x, weights, 4, config_of(launch.device_of(x).architecture, rows), splits)

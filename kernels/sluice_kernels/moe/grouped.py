"""Large steps by torch's grouped product: rows are copied into the order of the experts, without padding between them."""

import torch

from sluice_kernels import launch
from sluice_kernels.moe.configs import GROUPED_ARCHITECTURES, GROUPED_MULTIPLE, GROUPED_ROWS
from sluice_kernels.moe.reference import ExpertWeights, Routing, Shared
from sluice_kernels.moe.routing import align_triton
from sluice_kernels.moe.triton import combine_triton
from sluice_kernels.silu_mul.triton import silu_mul_triton


def uses_grouped(x: torch.Tensor, weights: ExpertWeights, routing: Routing) -> bool:
    """True if torch's grouped product computes this step: it is large, and torch has a kernel that needs no host."""
    sizes = (*weights.gate_up.shape[1:], *weights.down.shape[1:])
    return (
        x.dtype == torch.bfloat16
        and launch.device_of(x).architecture in GROUPED_ARCHITECTURES
        and all(size % GROUPED_MULTIPLE == 0 for size in sizes)
        and routing.experts.numel() >= GROUPED_ROWS * weights.gate_up.shape[0]
    )


def moe_grouped(
    x: torch.Tensor, weights: ExpertWeights, routing: Routing, shared: Shared | None = None
) -> torch.Tensor:
    """Computes `moe_reference` for at least one row; the products of gate and up are rounded before the activation too."""
    aligned = align_triton(routing.experts, weights.gate_up.shape[0], tile=1)
    rows = x.index_select(0, aligned.order // routing.experts.shape[1])
    gate_up = torch._grouped_mm(rows, weights.gate_up.mT, offs=aligned.ends)
    outputs = torch._grouped_mm(silu_mul_triton(gate_up, "silu"), weights.down.mT, offs=aligned.ends)
    return combine_triton(outputs, aligned.places, routing.weights, shared)

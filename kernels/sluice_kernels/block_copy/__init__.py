"""Copies of whole cache blocks, in the pool and from and to pinned memory: Triton on CUDA, plain torch elsewhere."""

import torch

from sluice_kernels import arguments, launch
from sluice_kernels.block_copy.reference import block_copy_reference

__all__ = ["block_copy", "can_use"]


def can_use(source: torch.device, target: torch.device, pinned: bool) -> str | None:
    """None if the kernel copies between these devices, else the reason. `pinned`: whether host memory is pinned."""
    if "cuda" not in (source.type, target.type):
        return f"block_copy needs a CUDA device on one side, got {source} and {target}"
    if "cpu" in (source.type, target.type) and not pinned:
        return "block_copy needs pinned host memory: the device cannot address other host memory"
    return None


def block_copy(source: torch.Tensor, target: torch.Tensor, pairs: torch.Tensor) -> None:
    """Copies block pairs[i, 0] of source to block pairs[i, 1] of target, for all i, as if all blocks were read first.

    source, target [num_blocks, …] contiguous, of one dtype and block shape: the same pool, or one of them in pinned host
    memory. pairs [n, 2] int64 on the CPU, valid block numbers; the targets are distinct. Raises ValueError for an
    argument that does not match.
    """
    _check(source, target, pairs)
    if source.is_cuda or target.is_cuda or launch.is_compiled(source):
        from sluice_kernels.block_copy.triton import block_copy_triton

        block_copy_triton(source, target, pairs)
    else:
        block_copy_reference(source, target, pairs)


def _check(source: torch.Tensor, target: torch.Tensor, pairs: torch.Tensor) -> None:
    arguments.check("source", source.dim() >= 2, "shape [num_blocks, …]", list(source.shape))
    arguments.check_shape("target", target, "[num_blocks, …]", None, *source.shape[1:])
    arguments.check_dtype("target", target, source.dtype)
    arguments.check_contiguous("source", source)
    arguments.check_contiguous("target", target)
    arguments.check_shape("pairs", pairs, "[n, 2]", None, 2)
    arguments.check_dtype("pairs", pairs, torch.int64)
    arguments.check("pairs", pairs.device.type == "cpu", "device cpu", pairs.device)
    arguments.check_contiguous("pairs", pairs)
    if not (source.is_cuda or target.is_cuda):
        arguments.check_device(source, target=target)
    if len(pairs):
        least, most = int(pairs.min()), pairs.amax(0).tolist()
        inside = least >= 0 and most[0] < len(source) and most[1] < len(target)
        expected = f"blocks from 0 to {len(source) - 1} and to {len(target) - 1}"
        arguments.check("pairs", inside, expected, f"{least} to {most}")
        arguments.check("pairs", len(set(pairs[:, 1].tolist())) == len(pairs), "distinct targets", pairs[:, 1].tolist())
    for name, tensor in (("source", source), ("target", target)):
        if tensor.device.type == "cpu" and (source.is_cuda or target.is_cuda):
            arguments.check_supported(name, can_use(source.device, target.device, tensor.is_pinned()))

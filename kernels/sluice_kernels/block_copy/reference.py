"""Copies of whole cache blocks in plain torch: the specification of the kernel."""

import torch


def block_copy_reference(source: torch.Tensor, target: torch.Tensor, pairs: torch.Tensor) -> None:
    """source, target [num_blocks, …], maybe the same pool; pairs [n, 2] int64 on the CPU: block pairs[i, 0] of source
    goes to block pairs[i, 1] of target. All blocks are read before any is written, so that a target may be the source of
    another pair.
    """
    read = source[pairs[:, 0].to(source.device)]
    target[pairs[:, 1].to(target.device)] = read.to(target.device)

"""Memory that shows wrong accesses: guards around what a kernel may write, poison around what it may read."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch

from sluice_kernels import launch

GUARD_BYTES = 256
AROUND = 64  # poisoned elements before and after a tensor that is contiguous
FILL = 0x7F  # 0x7F… is NaN or about 3e38 in every float type, so that an element that was not written is noticed


class Mismatch(Exception):
    """A kernel and its reference differ, or the kernel wrote elsewhere. The message names the case and the error."""


@contextmanager
def guarded(device: str) -> Iterator[None]:
    """Puts guards around all outputs that kernels allocate in this block. Raises Mismatch for a changed guard."""
    buffers: list[tuple[torch.Tensor, int]] = []

    def empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        size = dtype.itemsize * math.prod(shape)
        buffer = torch.full((size + 2 * GUARD_BYTES,), FILL, dtype=torch.uint8, device=device)
        buffers.append((buffer, size))
        return buffer[GUARD_BYTES : GUARD_BYTES + size].view(dtype).view(shape)

    with patch.object(launch, "empty", empty):
        yield
    for buffer, size in buffers:
        if bool((buffer[:GUARD_BYTES] != FILL).any()) or bool((buffer[GUARD_BYTES + size :] != FILL).any()):
            raise Mismatch(f"wrote outside an output of {size} bytes on {device}")


def poisoned(tensor: torch.Tensor, padding: int, device: str) -> torch.Tensor:
    """The rows of a [rows, …, width] tensor as a view with NaN around them: `padding` elements before and after each
    row, and one row before and after all.
    """
    rows, width = tensor.shape[0], math.prod(tensor.shape[1:])
    buffer = torch.full((rows + 2, width + 2 * padding), float("nan"), dtype=torch.float32).to(tensor.dtype).to(device)
    view = buffer[1 : rows + 1, padding : padding + width]
    view.copy_(tensor.reshape(rows, width))
    return view.unflatten(1, tensor.shape[1:]) if tensor.dim() > 2 else view


def surrounded(tensor: torch.Tensor, poison: float, device: str) -> torch.Tensor:
    """The tensor as a contiguous view with poison before and after it."""
    buffer = torch.full((tensor.numel() + 2 * AROUND,), poison, dtype=tensor.dtype, device=device)
    view = buffer[AROUND : AROUND + tensor.numel()].view(tensor.shape)
    view.copy_(tensor)
    return view

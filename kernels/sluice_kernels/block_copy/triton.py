"""Copies of whole cache blocks in Triton, in one launch for all pairs, also from and to pinned host memory, which the
device addresses directly. Blocks are copied as 64-bit words, or as bytes where their size or address is odd.
"""

import torch
import triton
import triton.language as tl

from sluice_kernels import launch
from sluice_kernels.block_copy.configs import CHUNK, WARPS
from sluice_kernels.integers import cdiv

WORDS = (torch.int64, torch.int32, torch.int16, torch.uint8)


@triton.jit
def _block_copy(  # type: ignore[no-untyped-def]
    source,  # [num_blocks, words]
    target,  # [num_blocks, words]
    pairs,  # [n, 2] int64
    source_stride,
    target_stride,
    words: tl.constexpr,
    chunk: tl.constexpr,
):
    pair = tl.program_id(0)
    word = tl.program_id(1).to(tl.int64) * chunk + tl.arange(0, chunk)
    mask = word < words
    read = tl.load(pairs + 2 * pair) * source_stride + word
    written = tl.load(pairs + 2 * pair + 1) * target_stride + word
    tl.store(target + written, tl.load(source + read, mask=mask), mask=mask)


def block_copy_triton(source: torch.Tensor, target: torch.Tensor, pairs: torch.Tensor) -> None:
    """Computes `block_copy_reference`. Where a target is also the source of a pair, the blocks go through a buffer."""
    count, device = len(pairs), source.device if source.is_cuda else target.device
    if count == 0 or source[0].numel() == 0:
        return
    placed = pairs.to(device, non_blocking=True)
    if source.data_ptr() != target.data_ptr() or not _overlap(pairs):
        _launch(source, target, placed)
        return
    buffer = launch.empty((count, *source.shape[1:]), source.dtype, source.device)
    order = torch.arange(count, device=device)
    _launch(source, buffer, torch.stack([placed[:, 0], order], 1))
    _launch(buffer, target, torch.stack([order, placed[:, 1]], 1))


def _overlap(pairs: torch.Tensor) -> bool:
    return not set(pairs[:, 0].tolist()).isdisjoint(pairs[:, 1].tolist())


def _launch(source: torch.Tensor, target: torch.Tensor, pairs: torch.Tensor) -> None:
    kind = _word(source, target)
    read, written = (tensor.flatten(1).view(kind) for tensor in (source, target))
    words = read.shape[1]
    launch.launch(
        _block_copy, (len(pairs), cdiv(words, CHUNK)),
        (read, written, pairs, read.stride(0), written.stride(0)),
        words=words, chunk=CHUNK, num_warps=WARPS,
    )  # fmt: skip


def _word(source: torch.Tensor, target: torch.Tensor) -> torch.dtype:
    """The widest word that divides a block and both addresses."""
    size = source[0].numel() * source.element_size()
    places = [tensor.storage_offset() * tensor.element_size() for tensor in (source, target)]
    return next(kind for kind in WORDS if all(each % kind.itemsize == 0 for each in (size, *places)))

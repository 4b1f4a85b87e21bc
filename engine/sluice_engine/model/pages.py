"""Zeroed memory in the largest pages that the system gives: reading weights and caches costs fewer page walks there."""

import contextlib
import mmap

import torch


def area(size: int) -> torch.Tensor:
    """[size] uint8, zero, at an address that is a multiple of the page size; taken from the system only where it is
    touched. Raises MemoryError."""
    try:
        # Private: what could be shared gets no huge pages.
        memory = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size} bytes could not be had: {error}") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):  # Linux
        with contextlib.suppress(OSError):  # a kernel without them: any pages do
            memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8, count=size)

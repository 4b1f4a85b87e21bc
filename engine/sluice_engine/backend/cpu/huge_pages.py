"""Zeroed memory in the largest available pages, so that reading weights and caches costs fewer page walks."""

import contextlib
import mmap

import torch


def zeroed_memory(size: int) -> torch.Tensor:
    """[size] uint8, zeroed, page-aligned; the system allocates pages on first access. Raises MemoryError."""
    try:
        # Private, because shared mappings get no huge pages.
        memory = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"{size} bytes could not be allocated: {error}") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):  # Linux
        with contextlib.suppress(OSError):  # kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8, count=size)

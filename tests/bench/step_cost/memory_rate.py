"""Rates at which several threads together copy and read memory that no cache holds.

A copy counts the bytes that it reads and the bytes that it writes, as STREAM does (McCalpin 1995). The C library's
functions run outside the GIL, each thread on its own part of the arrays.
"""

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

from sluice_engine.backend.cpu.huge_pages import zeroed_memory

PART_BYTES = 64 << 20  # of each array and thread; more than the caches hold
_ABSENT = 1  # a byte that the arrays do not contain
_LIBC = ctypes.CDLL(None)
_LIBC.memchr.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
_LIBC.memchr.restype = ctypes.c_void_p


class MemoryRate:
    """Two arrays for each of `threads` threads, with all pages allocated."""

    def __init__(self, threads: int, part_bytes: int = PART_BYTES) -> None:
        self._bytes = part_bytes
        self._arrays = [(zeroed_memory(part_bytes), zeroed_memory(part_bytes)) for _ in range(threads)]
        self._parts = [(source.data_ptr(), target.data_ptr()) for source, target in self._arrays]
        for pair in self._arrays:
            for array in pair:
                array.zero_()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="memory")

    def copied(self, passes: int) -> float:
        """Bytes read and written per second, over `passes` copies of all parts."""
        return 2 * self._rate(self._copy, passes)

    def read(self, passes: int) -> float:
        """Bytes read per second, over `passes` searches of all parts for a byte that is not there."""
        return self._rate(self._search, passes)

    def _rate(self, touch: Callable[[int, int], None], passes: int) -> float:
        begun = time.perf_counter()
        wait([self._pool.submit(self._repeat, touch, part, passes) for part in self._parts])
        return passes * len(self._parts) * self._bytes / (time.perf_counter() - begun)

    @staticmethod
    def _repeat(touch: Callable[[int, int], None], part: tuple[int, int], passes: int) -> None:
        for _ in range(passes):
            touch(*part)

    def _copy(self, source: int, target: int) -> None:
        ctypes.memmove(target, source, self._bytes)

    def _search(self, source: int, _target: int) -> None:
        _LIBC.memchr(source, _ABSENT, self._bytes)

"""What the device reaches at most, measured in the same run: never a number from a data sheet."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch

REPEATS: Final = 30
FLUSH_BYTES: Final = 1 << 30  # more than any L2 cache, and long enough for the host to launch what is measured


@dataclass(frozen=True)
class Ceilings:
    """Bytes per second of a copy (read and written), and flops per second of a bfloat16 matmul."""

    copy: float
    matmul: float

    def floor(self, moved: int, flops: int) -> float:
        """The least seconds for this much work."""
        return max(moved / self.copy, flops / self.matmul)


def measure(device: str, *, small: bool) -> Ceilings:
    """A copy of 1 GiB and a product of 8192³; small: 1 MiB and 64³."""
    source = torch.empty(1 << (20 if small else 30), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy = 2 * source.numel() / seconds_of(lambda: target.copy_(source), device)
    side = 64 if small else 8192
    left, right = (torch.randn(side, side, device=device).to(torch.bfloat16) for _ in range(2))
    return Ceilings(copy, 2 * side**3 / seconds_of(lambda: left @ right, device))


def seconds_of(call: Callable[[], object], device: str) -> float:
    """Median seconds of one call. On CUDA by events, after a warm-up, with the L2 cache flushed between calls."""
    if device == "cpu":
        began = time.perf_counter()
        call()
        return time.perf_counter() - began
    for _ in range(3):
        call()
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device)
    times = []
    for _ in range(REPEATS):
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return statistics.median(times)

"""Measures paged decode attention against the device's copy bandwidth, and torch's attention on equal contiguous work.

Decode attention reads every cached key and value once and computes little. Therefore the upper bound is the bandwidth
of a plain copy on the same device in the same run, never a number from a data sheet.
"""

import csv
import hashlib
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

import torch

import sluice_kernels
from sluice_kernels.paged_decode import paged_decode

RESULTS: Final = Path(__file__).with_name("results.csv")
BATCH, CONTEXT, Q_HEADS, KV_HEADS, HEAD_DIM, BLOCK_SIZE = 64, 4096, 32, 8, 128, 16
REPEATS: Final = 50


@dataclass(frozen=True)
class Result:
    """One line of results.csv. `fraction` is relative to the copy bandwidth measured in the same run."""

    code: str  # digest of the kernels' sources
    device: str
    torch: str
    triton: str
    what: str
    shape: str
    seconds: float  # median of REPEATS
    bytes: int
    fraction: float


def measure(say: Callable[[str], None]) -> list[Result]:
    """Measures copy, kernel and torch's attention in sequence on the current CUDA device and appends to results.csv."""
    import triton

    torch.manual_seed(0)
    device = torch.cuda.get_device_name()
    num_blocks = BATCH * CONTEXT // BLOCK_SIZE
    query = torch.randn(BATCH, Q_HEADS, HEAD_DIM, device="cuda", dtype=torch.bfloat16)
    keys, values = (
        torch.randn(num_blocks, BLOCK_SIZE, KV_HEADS, HEAD_DIM, device="cuda", dtype=torch.bfloat16) for _ in range(2)
    )
    tables = torch.randperm(num_blocks, device="cuda").to(torch.int32).reshape(BATCH, -1)
    contexts = torch.full((BATCH,), CONTEXT, dtype=torch.int32, device="cuda")
    dense_keys, dense_values = (
        torch.randn(BATCH, KV_HEADS, CONTEXT, HEAD_DIM, device="cuda", dtype=torch.bfloat16) for _ in range(2)
    )

    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copy_seconds = seconds_of(lambda: target.copy_(source))
    copy_bytes = 2 * source.numel()
    ceiling = copy_bytes / copy_seconds
    say(f"{device}: copies at {ceiling / 1e9:.0f} GB/s")

    moved = 2 * keys.numel() * keys.element_size() + 2 * query.numel() * query.element_size()
    shape = f"batch {BATCH}, context {CONTEXT}, heads {Q_HEADS}/{KV_HEADS}, head dim {HEAD_DIM}, bfloat16"

    def peer() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            query[:, :, None], dense_keys, dense_values, enable_gqa=True
        )

    code = sources_digest()
    results = [
        Result(code, device, torch.__version__, triton.__version__, "copy", "1 GiB", copy_seconds, copy_bytes, 1.0)
    ]
    for what, call in (
        ("sluice paged_decode", lambda: paged_decode(query, keys, values, tables, contexts)),
        ("torch sdpa, contiguous", peer),
    ):
        seconds = seconds_of(call)
        fraction = moved / seconds / ceiling
        results.append(
            Result(code, device, torch.__version__, triton.__version__, what, shape, seconds, moved, round(fraction, 4))
        )
        say(f"{what}: {seconds * 1e6:.0f} µs for {moved / 1e6:.0f} MB, {fraction:.1%} of the copy bandwidth ({shape})")
    append(results)
    return results


def sources_digest() -> str:
    """Returns a digest of the measured kernels' sources, which distinguishes results of different code."""
    files = sorted(Path(sluice_kernels.__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"\n".join(path.read_bytes() for path in files)).hexdigest()[:20]


def seconds_of(call: Callable[[], object]) -> float:
    """Returns the median device seconds of one call by CUDA events, after a warm-up. The L2 cache is flushed between
    calls.
    """
    for _ in range(5):
        call()
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
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


def append(results: list[Result]) -> None:
    """Appends lines to results.csv; the first run writes the header."""
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Result)])
        if new:
            writer.writeheader()
        writer.writerows(asdict(result) for result in results)

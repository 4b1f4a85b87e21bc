"""What the compiled kernels must keep."""

from collections.abc import Sequence
from typing import Final

from aot.table import Row

MOST_SHARED: Final = {"sm_80": 163 << 10, "sm_90": 227 << 10, "sm_100": 227 << 10}  # bytes that one program can get


def misses(rows: Sequence[Row]) -> list[str]:
    """A sentence for every kernel that misses a bar. fp32 serves correctness and may spill; fp8 is in the table as it is."""
    found = []
    for row in rows:
        name = ", ".join(row.name)
        if row.shared > MOST_SHARED[row.architecture]:
            found.append(f"{name}: {row.shared} bytes of shared memory, at most {MOST_SHARED[row.architecture]}")
        if row.dtype == "fp32":
            continue
        if row.spilled and "fp8" not in row.call:
            found.append(f"{name}: {row.spilled} bytes spilled")
        # ptxas begins a tcgen05 kernel with the byte-wide load of a flag: whether tensor memory is already allocated.
        flags = 1 if row.architecture == "sm_100" and row.wgmma else 0
        if row.byte_loads > flags and "fp8" not in row.call:
            found.append(f"{name}: {row.byte_loads} byte-wide loads from shared memory")
        if row.kernel == "paged_prefill" and row.architecture == "sm_90" and "256, drafted" not in row.call:
            found += [f"{name}: no wgmma"] * (row.wgmma == 0)
        if row.kernel in ("expert_gate_up", "expert_down") and row.architecture == "sm_90" and "few" not in row.call:
            found += [f"{name}: no wgmma"] * (row.wgmma == 0)
    return found

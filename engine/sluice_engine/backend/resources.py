"""Memory and processors that this process may use: the limits of its cgroup (v1 and v2), not of the host.

Paths are arguments so that tests can pass their own folder. Standard library only.
"""

import math
import os
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")
GPU_DEVICES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
_UNLIMITED = 1 << 60  # cgroup v1 reports "no limit" as a huge page-rounded number


def memory_left(cgroup: Path = CGROUP_ROOT, meminfo: Path = MEMINFO) -> int:
    """Bytes that this process may still allocate: the cgroup's limit minus its use, at most the machine's available
    memory. Inactive page cache does not count as use.
    """
    machine = _meminfo(meminfo, "MemAvailable")
    for limit_file, use_file, cache_key in (
        (cgroup / "memory.max", cgroup / "memory.current", "inactive_file"),
        (cgroup / "memory/memory.limit_in_bytes", cgroup / "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        limit = _number(limit_file)
        if limit is not None and limit < _UNLIMITED:
            used = _number(use_file) or 0
            dropable = _stat(limit_file.with_name("memory.stat"), cache_key)
            return max(0, min(machine, limit - max(0, used - dropable)))
    return machine


def memory_total(cgroup: Path = CGROUP_ROOT, meminfo: Path = MEMINFO) -> int:
    """Bytes that this process can have at most: the cgroup's limit, or the machine's memory if that is less."""
    limits = (_number(cgroup / "memory.max"), _number(cgroup / "memory/memory.limit_in_bytes"))
    return min(limit for limit in (_meminfo(meminfo, "MemTotal"), *limits) if limit is not None)


def expects_gpu(device: str) -> bool:
    """Whether `--device` "auto", "cpu" or "cuda" means a GPU here, judged without torch by the driver's files."""
    return device == "cuda" or (device == "auto" and any(path.exists() for path in GPU_DEVICES))


def processors(cgroup: Path = CGROUP_ROOT) -> int:
    """Whole processors that this process may use, at least 1: the cgroup's quota, capped by CPU affinity."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, period = _quota(cgroup)
    if quota is None or quota <= 0 or not period:
        return allowed
    return max(1, min(allowed, math.ceil(quota / period)))


def _quota(cgroup: Path) -> tuple[int | None, int | None]:
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return _number(cgroup / "cpu/cpu.cfs_quota_us"), _number(cgroup / "cpu/cpu.cfs_period_us")
    return (None, None) if quota == "max" else (int(quota), int(period))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # absent, or "max"
        return None


def _stat(path: Path, key: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.split()[:1] == [key]), 0)


def _meminfo(meminfo: Path, key: str) -> int:
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return 1 << 32
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:")), 1 << 32)


def binary_size(size: int) -> str:
    """Return bytes as text in the binary unit that fits: 5 B, 512 KiB, 1.5 GiB."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power:
            return f"{size / (1 << power):.4g} {unit}"
    return f"{size} B"


def size_option(size: int) -> str:
    """Return the least value of an option such as --kv-size that gives at least `size` bytes: 512Ki, 3Mi."""
    power, unit = (20, "Mi") if size >= 1 << 20 else (10, "Ki")
    return f"{-(-size // (1 << power))}{unit}"


def small_pool(tokens: int, needed: int, given: int, fits: int) -> str:
    """The sentence for a --kv-size of `given` bytes where one request of `tokens` needs more; `fits` tokens would fit."""
    second = f"serve shorter requests: --max-model-length {fits} would fit" if fits else "leave it out"
    return (
        f"The KV cache of one request of {tokens} tokens needs {binary_size(needed)}, and --kv-size gives "
        f"{binary_size(given)}. Raise it to --kv-size {size_option(needed)}, or {second}."
    )

"""Identifies the processor that a number was measured on; without it the number is not comparable."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

TELLING_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8")


@dataclass(frozen=True, slots=True)
class Processor:
    """Name, instruction-set flags, cores available to this process, and the load average at the time of the call."""

    name: str
    flags: tuple[str, ...]
    cores: int
    load_average: float


def describe() -> Processor:
    """This machine's processor, from /proc/cpuinfo if it exists."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    fields = dict(line.split(":", 1) for line in reversed(lines) if ":" in line)
    named = {key.strip(): value.strip() for key, value in fields.items()}
    flags = set(named.get("flags", "").split())
    return Processor(
        name=named.get("model name", platform.processor() or platform.machine()),
        flags=tuple(flag for flag in TELLING_FLAGS if flag in flags),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        load_average=round(os.getloadavg()[0], 2),
    )

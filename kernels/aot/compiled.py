"""Compiles a recorded launch for an architecture and reads what the machine code needs. No GPU is involved."""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from sluice_kernels.launch import Launch

# CUDA C++ Programming Guide, technical specifications per compute capability.
REGISTERS: Final = 65536
THREADS: Final = 2048
PROGRAMS: Final = 32
SHARED: Final = {80: 164 << 10, 90: 228 << 10, 100: 228 << 10}  # bytes per multiprocessor
RESERVED: Final = 1 << 10  # shared memory of the system per program
WARP: Final = 32

_WGMMA = re.compile(r"\b(?:HGMMA|QGMMA|UTC[A-Z]*MMA)\b")
_MMA = re.compile(r"\b(?:HMMA|QMMA|OMMA)\b")
_BYTE_LOAD = re.compile(r"\bLDS\.[US]8\b")


@dataclass(frozen=True)
class Measured:
    """What one kernel needs. `wgmma` counts products of whole warp groups, `mma` those of one warp."""

    registers: int
    shared: int  # bytes per program
    spilled: int  # bytes of stack per thread; Triton has no other use of the stack
    resident: int  # programs per multiprocessor
    wgmma: int
    mma: int
    byte_loads: int  # loads of single bytes from shared memory


def measure(launch: Launch, architecture: int) -> Measured:
    """Compiles the launch. Raises what Triton raises for a kernel that does not compile."""
    kernel = compiled(launch, architecture)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        code = _cuobjdump(file.name)
    found = re.search(r"REG:(\d+) STACK:(\d+)", code)
    if found is None:
        raise RuntimeError(f"cuobjdump printed no resource usage for {launch.kernel.__name__}: {code[:400]}")
    registers, spilled = int(found[1]), int(found[2])
    shared, warps = int(kernel.metadata.shared), int(kernel.metadata.num_warps)
    return Measured(
        registers, shared, spilled, resident(registers, shared, warps, architecture),
        *(len(pattern.findall(code)) for pattern in (_WGMMA, _MMA, _BYTE_LOAD)),
    )  # fmt: skip


def resident(registers: int, shared: int, warps: int, architecture: int) -> int:
    """Programs per multiprocessor. A warp's registers are allocated by 256, so a thread's by 8."""
    by_registers = REGISTERS // (-(-registers // 8) * 8 * WARP * warps)
    by_shared = SHARED[architecture] // (shared + RESERVED)
    return min(PROGRAMS, THREADS // (WARP * warps), by_registers, by_shared)


def compiled(launch: Launch, architecture: int) -> Any:
    """Triton's compiled kernel, with `asm` and `metadata`."""
    names = launch.kernel.arg_names
    signature = {name: launch.types.get(name, "constexpr") for name in names}
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in launch.divisible if name in launch.types}
    source = ASTSource(launch.kernel, signature, launch.constants, attributes)
    return triton.compile(source, target=GPUTarget("cuda", architecture, WARP), options=launch.options)


def _cuobjdump(path: str) -> str:
    """Resource usage and machine code."""
    done = subprocess.run([_tool(), "-res-usage", "-sass", path], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


@cache
def _tool() -> str:
    """cuobjdump of Triton's wheel."""
    return str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump")

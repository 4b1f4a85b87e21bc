"""Compiles recorded launches into Triton's cache without a GPU, under the keys that the same launches have on one.

Triton's key of a kernel has its source, the types and constants that it is specialised on, the options, the architecture,
the versions of Triton and ptxas, and a few variables of the environment: nothing of the driver or of the device. So its own
launch path is run with a driver that knows only the architecture, up to the launch itself.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from sluice_kernels.launch import POINTERS, Launch

_DTYPES: Final = {name: dtype for dtype, name in POINTERS.items()}
_INTEGERS: Final = {"i32": 0, "i64": 1 << 40}  # multiples of 16 of these types


@dataclass(frozen=True, slots=True)
class Target:
    """What Triton asks of a driver before a launch. The device's number is its architecture, so that each has its kernels."""

    architecture: int  # 90 for sm_90

    def get_current_target(self) -> GPUTarget:
        """Threads per warp are 32 on all of NVIDIA's architectures."""
        return GPUTarget("cuda", self.architecture, 32)

    def get_current_device(self) -> int:
        """See above."""
        return self.architecture

    def get_current_stream(self, device: int) -> int:
        """The default stream; nothing is launched on it."""
        return 0


@dataclass(frozen=True, slots=True)
class Pointer:
    """A tensor as Triton specialises on it."""

    dtype: torch.dtype
    address: int

    def data_ptr(self) -> int:
        """Its address."""
        return self.address


@contextmanager
def compiling_for(architecture: int) -> Iterator[None]:
    """Triton compiles for this architecture inside. Only for a process that launches nothing."""
    driver.set_active(Target(architecture))
    try:
        yield
    finally:
        driver.set_active(None)


def precompile(launches: Iterable[Launch], architecture: int) -> int:
    """Compile the distinct kernels of these launches into Triton's cache (TRITON_CACHE_DIR); returns how many there are.
    Raises what Triton raises for a kernel that does not compile.
    """
    distinct = {launch.key: launch for launch in launches}
    with compiling_for(architecture), knobs.compilation.scope():
        knobs.compilation.store_binary_only = True
        for launch in distinct.values():
            compile_launch(launch)
    return len(distinct)


def compile_launch(launch: Launch) -> Any:
    """Triton's compiled kernel of this launch, for the architecture of `compiling_for`."""
    given = [_argument(launch, parameter.name) for parameter in launch.kernel.params if not parameter.is_constexpr]
    constants = {
        parameter.name: launch.constants[parameter.name]
        for parameter in launch.kernel.params
        if parameter.is_constexpr and parameter.name in launch.constants
    }
    return launch.kernel.run(*given, grid=launch.grid, warmup=True, **constants, **launch.options)


def _argument(launch: Launch, name: str) -> object:
    """A value of this argument on which Triton specialises as on the recorded one."""
    kind, rest = launch.types.get(name), 0 if name in launch.divisible else 8
    if kind is None:
        return launch.constants[name]
    if kind == "fp32":
        return 0.5
    return _INTEGERS[kind] + rest if kind in _INTEGERS else Pointer(_DTYPES[kind], rest)

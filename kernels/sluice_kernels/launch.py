"""All kernel launches and output allocations go through here, so that a launch can be recorded instead of run.

A recorded launch holds what Triton specialises a kernel on. `kernels/aot` compiles recorded launches without a GPU, and
two launches with one `key` share one compiled kernel. While recording, tensors may be on the meta device.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import torch

MULTIPROCESSORS: Final = {80: 108, 89: 142, 90: 132, 100: 148}  # of A100, L40S, H100 and H200, B200

POINTERS: Final = {
    torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.float64: "*fp64",
    torch.float8_e4m3fn: "*fp8e4nv",
    torch.int64: "*i64", torch.int32: "*i32", torch.int16: "*i16", torch.int8: "*i8", torch.uint8: "*u8",
    torch.bool: "*i1",
}  # fmt: skip


@dataclass(frozen=True)
class Device:
    """What a configuration may depend on. `architecture` is 90 for sm_90."""

    architecture: int
    multiprocessors: int


INTERPRETER: Final = Device(90, 1)


@dataclass(frozen=True)
class Launch:
    """One recorded launch. `types` and `divisible` are by argument; an integer 1 is a constant, as Triton has it."""

    kernel: Any  # triton.JITFunction
    grid: tuple[int, ...]
    types: dict[str, str]
    constants: dict[str, object]
    divisible: tuple[str, ...]  # arguments that are multiples of 16
    options: dict[str, int]

    @property
    def key(self) -> tuple[object, ...]:
        """Two launches with equal keys use one compiled kernel."""
        constants = tuple(sorted((name, str(value)) for name, value in self.constants.items()))
        types, options = (tuple(sorted(each.items())) for each in (self.types, self.options))
        return (self.kernel.__name__, types, constants, self.divisible, options)


@dataclass
class Recording:
    """The launches of a `recording` block, as if on this device."""

    device: Device
    launches: list[Launch] = field(default_factory=list)


_active: Recording | None = None
_compiled: dict[tuple[object, ...], Any] = {}  # by kernel, device and what Triton specialises on


@contextmanager
def recording(architecture: int) -> Iterator[list[Launch]]:
    """Records launches for an architecture instead of running them. Raises ValueError for an unknown one."""
    global _active
    if architecture not in MULTIPROCESSORS:
        raise ValueError(f"architecture: expected one of {sorted(MULTIPROCESSORS)}, got {architecture}")
    before, _active = _active, Recording(Device(architecture, MULTIPROCESSORS[architecture]))
    try:
        yield _active.launches
    finally:
        _active = before


def is_compiled(tensor: torch.Tensor) -> bool:
    """Whether a kernel on this tensor runs compiled, or is recorded for that."""
    return tensor.is_cuda or _active is not None


def device_of(tensor: torch.Tensor) -> Device:
    """The device that a kernel on this tensor is configured for."""
    if _active is not None:
        return _active.device
    return _cuda_device(tensor.device) if tensor.is_cuda else INTERPRETER


@cache
def _cuda_device(device: torch.device) -> Device:
    properties = torch.cuda.get_device_properties(device)
    return Device(properties.major * 10 + properties.minor, properties.multi_processor_count)


def empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Allocates an output. The tests replace this function with one that puts guards around the memory."""
    return torch.empty(shape, dtype=dtype, device=device)


def launch(kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], **constants: Any) -> None:
    """Launches or records a kernel. `constants` holds its constexpr arguments, `num_warps` and `num_stages`.

    A compiled kernel is launched by its own launcher from the second time on: to find it by what Triton specialises on takes
    half as long as Triton's own search, which a step of many layers feels.
    """
    if _active is not None:
        _active.launches.append(_record(kernel, grid, arguments, constants))
        return
    if not arguments[0].is_cuda:
        kernel[grid](*arguments, **constants)
        return
    key = (kernel, torch.cuda.current_device(), tuple(map(_described, arguments)), tuple(constants.items()))
    compiled = _compiled.get(key)
    if compiled is None:
        _compiled[key] = kernel[grid](*arguments, **constants)
        return
    names = kernel.arg_names[len(arguments) :]
    compiled[(*grid, 1, 1)[:3]](*arguments, *(constants[name] for name in names))


def _described(value: object) -> object:
    """What Triton specialises on of an argument, or more."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.data_ptr() % 16 == 0
    if isinstance(value, int):
        return value == 1, value % 16 == 0, -(2**31) <= value < 2**31
    return type(value)


def _record(kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], constants: dict[str, Any]) -> Launch:
    options: dict[str, int] = {name: constants[name] for name in ("num_warps", "num_stages") if name in constants}
    fixed = {name: value for name, value in constants.items() if name not in options}
    types: dict[str, str] = {}
    divisible: list[str] = []
    for parameter, value in zip(kernel.params, arguments, strict=False):
        name = parameter.name
        if parameter.do_not_specialize:  # a count of a step: one compiled kernel serves all
            types[name] = _integer_type(value)
            continue
        kind = _type_of(value)
        if kind == "constexpr":
            fixed[name] = value
        else:
            types[name] = kind
        if _is_divisible(value):
            divisible.append(name)
    return Launch(kernel, grid, types, fixed, tuple(divisible), options)


def _type_of(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return POINTERS[value.dtype]
    if isinstance(value, float):
        return "fp32"
    if isinstance(value, int) and not isinstance(value, bool) and value != 1:
        return _integer_type(value)
    return "constexpr"


def _integer_type(value: int) -> str:
    return "i32" if -(2**31) <= value < 2**31 else "i64"


def _is_divisible(value: object) -> bool:
    if isinstance(value, torch.Tensor):  # meta tensors have no address; allocators align to 16 bytes
        return value.storage_offset() * value.element_size() % 16 == 0
    return isinstance(value, int) and not isinstance(value, bool) and value != 1 and value % 16 == 0

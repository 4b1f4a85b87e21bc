"""Checks of kernel arguments. Each raises ValueError with the argument's name, what is expected and what was given."""

import torch

from sluice_kernels.fp8 import FP8

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def check_shape(name: str, tensor: torch.Tensor, layout: str, *sizes: int | None) -> None:
    """`layout` names the dimensions for the message; None in `sizes` is any size."""
    matches = tensor.dim() == len(sizes) and all(
        want is None or want == got for want, got in zip(sizes, tensor.shape, strict=True)
    )
    if not matches:
        wanted = ", ".join("any" if size is None else str(size) for size in sizes)
        raise ValueError(f"{name}: expected shape {layout} = [{wanted}], got {list(tensor.shape)}")


def check_dtype(name: str, tensor: torch.Tensor, *allowed: torch.dtype) -> None:
    """The tensor has one of these dtypes."""
    if tensor.dtype not in allowed:
        raise ValueError(f"{name}: expected dtype {' or '.join(map(str, allowed))}, got {tensor.dtype}")


def check_rows(name: str, tensor: torch.Tensor) -> None:
    """The last dimension is contiguous; the others may have any stride."""
    if tensor.dim() and tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
        raise ValueError(f"{name}: expected a contiguous last dimension, got strides {tensor.stride()}")


def check_contiguous(name: str, tensor: torch.Tensor) -> None:
    """The tensor is contiguous."""
    if not tensor.is_contiguous():
        raise ValueError(f"{name}: expected a contiguous tensor, got strides {tensor.stride()}")


def check_device(first: torch.Tensor, **others: torch.Tensor | None) -> None:
    """All tensors are on the device of the first."""
    for name, tensor in others.items():
        if tensor is not None and tensor.device != first.device:
            raise ValueError(f"{name}: expected device {first.device}, got {tensor.device}")


def check(name: str, holds: bool, expected: str, given: object) -> None:
    """Any other expectation."""
    if not holds:
        raise ValueError(f"{name}: expected {expected}, got {given}")


def check_supported(name: str, reason: str | None) -> None:
    """`reason` is the answer of a kernel's `can_use`."""
    if reason is not None:
        raise ValueError(f"{name}: {reason}")


def check_scales(name: str, scales: torch.Tensor | None, kv_heads: int, cache_dtype: torch.dtype) -> None:
    """An fp8 cache has one float32 scale per key-value head, any other cache has none."""
    if cache_dtype != FP8:
        check(name, scales is None, f"None for a cache of {cache_dtype}", "scales")
        return
    if scales is None:
        raise ValueError(f"{name}: expected float32 scales [kv_heads] = [{kv_heads}] for a cache of {FP8}, got None")
    check_shape(name, scales, "[kv_heads]", kv_heads)
    check_dtype(name, scales, torch.float32)
    check_contiguous(name, scales)

"""Single products of the compiled library, and AMX tiles wherever they are possible."""

import ctypes
from dataclasses import dataclass

import torch

from sluice_engine.backend.cpu.structs import Product
from sluice_engine.backend.cpu.tiles import Compute


def always(compute: Compute, rows: tuple[int, ...]) -> int:
    """Tiles for any number of rows, however long they take."""
    return rows[0]


@dataclass(frozen=True)
class Packed:
    """A packed weight, whose product uses tiles from one row on, and the memory that it points to."""

    product: Product
    memory: tuple[torch.Tensor, torch.Tensor]


def packed(
    library: ctypes.CDLL, level: int, weight: torch.Tensor, bias: torch.Tensor | None = None, int8: bool = True
) -> Packed:
    """weight [out, in], bias [out]."""
    for name in ("sluice_packed_rows", "sluice_packed_bytes", "sluice_prepared_bytes"):
        getattr(library, name).restype = ctypes.c_int64
    (outer, inner), bf16 = weight.shape, int(weight.dtype == torch.bfloat16)
    product = Product(None, None, inner, outer, 0, int(int8), 1)
    weights = _aligned(library.sluice_packed_bytes(ctypes.byref(product), bf16, level))
    biases = _aligned(4 * library.sluice_packed_rows(ctypes.byref(product), level))
    library.sluice_pack(
        ctypes.byref(product),
        _pointer(weight),
        _pointer(bias),
        bf16,
        _pointer(weights),
        None if bias is None else _pointer(biases),
        level,
    )
    product.packed = weights.data_ptr()
    product.bias = None if bias is None else biases.data_ptr()
    return Packed(product, (weights, biases))


def compiled_product(
    library: ctypes.CDLL,
    level: int,
    rows: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    int8: bool = True,
) -> torch.Tensor:
    """rows [count, in], weight [out, in], bias [out] → [count, out], all of one dtype, by the library's product, with the
    weight in int8 if wanted, and by AMX tiles at their level.
    """
    given = packed(library, level, weight, bias, int8)
    (outer, inner), bf16 = weight.shape, int(weight.dtype == torch.bfloat16)
    out = torch.full((len(rows) + 1, outer), 7.0, dtype=rows.dtype)  # the last row must stay
    prepared = _aligned(max(1, len(rows)) * library.sluice_prepared_bytes(ctypes.c_int64(inner)))
    library.sluice_multiply(
        ctypes.byref(given.product),
        _pointer(rows),
        ctypes.c_int64(len(rows)),
        _pointer(out),
        ctypes.c_int64(outer),
        bf16,
        _pointer(prepared),
        level,
    )
    assert bool((out[-1] == 7).all())
    return out[:-1]


def _aligned(size: int) -> torch.Tensor:
    memory = torch.zeros(size + 64, dtype=torch.uint8)
    return memory[-memory.data_ptr() % 64 :]


def _pointer(tensor: torch.Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())

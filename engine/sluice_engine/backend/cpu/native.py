"""The CPU attention kernel (`engine/native/`), called through ctypes; optional, because it needs a C compiler at
install.

This module runs only the attention of models whose other layers torch runs. The kernel reads the pages in place, in one
call for all rows of a step, and writes the step's keys and values first. `decoder.py` runs whole models. The library is
built at package installation if a C compiler exists (`sluice/build_hook.py`); without it torch computes everything.
"""

import ctypes
import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from sluice_engine.backend.cpu.structs import MIRRORS, Layer, Work, check_layouts
from sluice_engine.backend.cpu.tiles import TILE_LEVEL, Choose, attention_rows, least_faster
from sluice_engine.model.batch import Batch
from sluice_engine.model.int8_entries import head_dim_of

_log = logging.getLogger(__name__)
LIBRARY = Path(__file__).parents[2] / "_native" / "libsluice_cpu.so"
BF16_LEVEL = 3  # the first that multiplies bfloat16
LEVELS = {
    0: "no vector extension in particular",
    1: "AVX2",
    2: "AVX-512",
    BF16_LEVEL: "AVX-512 with bf16",
    TILE_LEVEL: "AMX and AVX-512 with bf16",
}
_BEST = max(LEVELS)
ABI = 13  # version of kernels.h: the library's functions and their arguments


@dataclass(frozen=True, slots=True)
class StepStruct:
    """The struct of a step and the arrays that it points to."""

    work: Work
    arrays: tuple[NDArray[np.int64], ...]


class NativeAttention:
    """The kernel, with its thread count. `choose` decides from how many rows on AMX tiles are used. Raises OSError if the
    library cannot be loaded, was compiled from other sources or has another struct layout, and AttributeError if it lacks
    a function.
    """

    def __init__(
        self, threads: int, library: Path = LIBRARY, level: int = _BEST, choose: Choose = least_faster
    ) -> None:
        self.library = loaded = ctypes.CDLL(str(library))
        if (found := int(loaded.sluice_abi())) != ABI:
            raise OSError(f"it was compiled from other sources (interface {found}, not {ABI})")
        check_layouts(loaded, MIRRORS)
        self._attend, self.decode = loaded.sluice_attend, loaded.sluice_decode
        self._attend.argtypes = (ctypes.POINTER(Work), ctypes.POINTER(Layer), ctypes.c_int)
        self._attend.restype = ctypes.c_int
        self.threads = threads
        self.level = min(level, int(loaded.sluice_level()))
        self.widens = self.level >= BF16_LEVEL and bool(loaded.sluice_widens(-1))
        self.choose = choose
        self._tile_rows: dict[int, int] = {}  # by head dimension

    def tile_rows(self, dim: int, dtype: torch.dtype) -> int:
        """Query rows of a KV head from which on AMX tiles attend; 0: never. Measured at the first call for a dimension."""
        if self.level < TILE_LEVEL or dtype != torch.bfloat16:
            return 0
        if dim not in self._tile_rows:
            found = self._tile_rows[dim] = attention_rows(self.library, dim, self.choose)
            _log.info("attention with heads of %d by AMX tiles: %s", dim, f"from {found} rows on" if found else "never")
        return self._tile_rows[dim]

    def can_attend(self, query: torch.Tensor, key: torch.Tensor, key_cache: torch.Tensor) -> bool:
        """True if the kernel supports these sizes and dtypes: float32 or bfloat16 on the CPU, a head dimension that is
        a multiple of 16 up to 256, and up to 64 query heads per KV head.
        """
        heads, kv_heads, dim = query.shape[1], key.shape[1], query.shape[3]
        return (
            query.device.type == "cpu"
            and query.dtype in (torch.float32, torch.bfloat16)
            and query.dtype == key.dtype
            and key_cache.dtype in (query.dtype, torch.int8)
            and dim % 16 == 0
            and dim <= 256
            and heads % kv_heads == 0
            and heads // kv_heads <= 64
        )

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        caches: tuple[torch.Tensor, torch.Tensor],
        batch: Batch,
        scale: float,
        window: int | None,
        softcap: float | None,
    ) -> torch.Tensor:
        """query [1, Hq, T, D], key and value [1, Hkv, T, D], caches [blocks, block_size, Hkv, entry] → [1, T, Hq, D].

        Raises RuntimeError when the kernel rejects the step: `can_attend` is false for it, or an allocation failed.
        """
        query, key, value = (tensor if tensor.stride(3) == 1 else tensor.contiguous() for tensor in (query, key, value))
        _, heads, tokens, dim = query.shape
        step = batch.native.get(heads)
        if step is None:
            step = batch.native[heads] = step_struct(batch, heads, caches[0], query.dtype, self)
        out = torch.empty(1, tokens, heads, dim, dtype=query.dtype)
        layer = Layer(
            query.data_ptr(),
            query.stride(2),
            query.stride(1),
            key.data_ptr(),
            value.data_ptr(),
            key.stride(2),
            key.stride(1),
            value.stride(2),
            value.stride(1),
            caches[0].data_ptr(),
            caches[1].data_ptr(),
            out.data_ptr(),
            window or 0,
            scale,
            softcap or 0.0,
        )
        code = self._attend(ctypes.byref(step.work), ctypes.byref(layer), self.level)
        if code:
            raise RuntimeError(f"the attention kernel rejected a step of {tokens} tokens (code {code})")
        return out


def step_struct(
    batch: Batch, heads: int, cache: torch.Tensor, dtype: torch.dtype, kernel: NativeAttention
) -> StepStruct:
    """The batch as `struct work`, for a model of `dtype` and a cache [blocks, block_size, Hkv, entry] of that dtype or of
    int8 (`int8_entries.py`). With one group of single tokens it points to the batch's own memory, which may be written again (`backend/repeated_decode.py`).
    """
    lengths, starts, firsts, tables = [], [], [], []
    used = 0
    for group in batch.groups:
        positions = group.query_positions.numpy()
        rows, width = group.block_tables.shape
        lengths.append((positions >= 0).sum(axis=1))
        starts.append(positions[:, 0])
        firsts.append(used + width * np.arange(rows))
        tables.append(group.block_tables.numpy().reshape(-1))
        used += rows * width
    row_first = np.concatenate(([0], np.cumsum(np.concatenate(lengths)))).astype(np.int64)
    arrays = (
        row_first,
        *(np.ascontiguousarray(_joined(parts), dtype=np.int64) for parts in (starts, firsts, tables)),
        np.ascontiguousarray(batch.slot_mapping.numpy()),
    )
    _, block_size, kv_heads, entry = cache.shape
    dim = head_dim_of(entry, cache.dtype)
    sizes = (len(row_first) - 1, int(row_first[-1]), heads, kv_heads, dim, block_size)
    addresses = (array.ctypes.data for array in arrays)
    tiles = kernel.tile_rows(dim, dtype)
    int8 = int(cache.dtype == torch.int8)
    work = Work(*sizes, int(dtype == torch.bfloat16), kernel.threads, *addresses, tiles, int8)
    return StepStruct(work, arrays)


def _joined(parts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def find(threads: int, library: Path | None = None) -> NativeAttention | None:
    """The kernel if it was compiled (to `library`, default `LIBRARY`) and can be loaded, else None. The log gives the
    reason.
    """
    library = library or LIBRARY
    if not library.is_file():
        _log.warning(
            "computing by torch, whose steps take 1.5 to 4 times as long: the library of compiled kernels is not there; "
            "install a C compiler and then Sluice again, or a wheel of `make wheel`"
        )
        return None
    try:
        kernel = NativeAttention(threads, library)
    except (OSError, AttributeError) as error:
        _log.warning(
            "computing by torch: %s cannot be used: %s; install again, or run engine/native/build.py, to compile it again",
            library,
            error,
        )
        return None
    how = ", which it multiplies as float32: that is faster here" if kernel.widens else ""
    _log.info("attention by the compiled kernel, with %s%s", LEVELS[kernel.level], how)
    return kernel

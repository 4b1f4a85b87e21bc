"""The processor's kernels (`engine/native/`), called through ctypes; absent where they were not compiled.

Here is attention alone, for models that torch runs otherwise: it reads the pages where they lie, in one call for all
rows of a step, and writes the step's keys and values first. `decoder.py` runs whole models. Built when the package is
installed and a C compiler is there (`sluice/build_hook.py`); everything works without.
"""

import ctypes
import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from sluice_engine.model.batch import Batch

_log = logging.getLogger(__name__)
LIBRARY = Path(__file__).parent.parent / "_native" / "libsluice_cpu.so"
LEVELS = {0: "no vector extension in particular", 1: "AVX2", 2: "AVX-512", 3: "AVX-512 with bf16"}
_BEST = max(LEVELS)
ABI = 3  # of kernels.h: which structs and functions the library has


class Work(ctypes.Structure):
    """`struct work` of kernels.h: one step, shared by all layers."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "tokens", "heads", "kv_heads")),
        *((name, ctypes.c_int64) for name in ("dim", "block_size", "bf16", "threads")),
        *((name, ctypes.c_void_p) for name in ("row_first", "row_start", "table_first", "tables", "slots")),
    )


class _Layer(ctypes.Structure):
    """`struct layer` of kernels.h: one layer's tensors."""

    _fields_ = (
        ("query", ctypes.c_void_p),
        ("query_token", ctypes.c_int64),
        ("query_head", ctypes.c_int64),
        ("key", ctypes.c_void_p),
        ("value", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("key_token", "key_head", "value_token", "value_head")),
        ("key_cache", ctypes.c_void_p),
        ("value_cache", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("window", ctypes.c_int64),
        ("scale", ctypes.c_float),
        ("softcap", ctypes.c_float),
    )


@dataclass(frozen=True, slots=True)
class Described:
    """A step's struct and the arrays that it points to."""

    work: Work
    arrays: tuple[NDArray[np.int64], ...]


class NativeAttention:
    """The kernel, with the number of threads it may use. Raises OSError where the library cannot be loaded or was
    compiled from other sources, AttributeError where it is so old that it lacks a function."""

    def __init__(self, threads: int, library: Path = LIBRARY, level: int = _BEST) -> None:
        self.library = loaded = ctypes.CDLL(str(library))
        if (found := int(loaded.sluice_abi())) != ABI:
            raise OSError(f"it was compiled from other sources (interface {found}, not {ABI})")
        self._attend, self.decode = loaded.sluice_attend, loaded.sluice_decode
        self._attend.argtypes = (ctypes.POINTER(Work), ctypes.POINTER(_Layer), ctypes.c_int)
        self._attend.restype = ctypes.c_int
        self.threads = threads
        self.level = min(level, int(loaded.sluice_level()))

    def can_attend(self, query: torch.Tensor, key: torch.Tensor, key_cache: torch.Tensor) -> bool:
        """Whether the kernel has these sizes and dtypes: float32 or bfloat16 on the processor, a head dimension that
        is a multiple of 16 up to 256, and up to 64 query heads for each KV head."""
        heads, kv_heads, dim = query.shape[1], key.shape[1], query.shape[3]
        return (
            query.device.type == "cpu"
            and query.dtype in (torch.float32, torch.bfloat16)
            and query.dtype == key.dtype == key_cache.dtype
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
        """query [1, Hq, T, D], key and value [1, Hkv, T, D], caches [blocks, block_size, Hkv, D] → [1, T, Hq, D].

        Raises RuntimeError when the kernel refuses: `can_attend` was not asked, or memory is out.
        """
        query, key, value = (tensor if tensor.stride(3) == 1 else tensor.contiguous() for tensor in (query, key, value))
        _, heads, tokens, dim = query.shape
        step = batch.native.get(heads)
        if step is None:
            step = batch.native[heads] = describe(batch, heads, caches[0], self.threads)
        out = torch.empty(1, tokens, heads, dim, dtype=query.dtype)
        layer = _Layer(
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
        refused = self._attend(ctypes.byref(step.work), ctypes.byref(layer), self.level)
        if refused:
            raise RuntimeError(f"the attention kernel refused a step of {tokens} tokens (code {refused})")
        return out


def describe(batch: Batch, heads: int, cache: torch.Tensor, threads: int) -> Described:
    """The batch as `struct work`, for a cache [blocks, block_size, Hkv, D] whose dtype is the model's."""
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
        *(np.ascontiguousarray(np.concatenate(parts), dtype=np.int64) for parts in (starts, firsts, tables)),
        np.ascontiguousarray(batch.slot_mapping.numpy()),
    )
    _, block_size, kv_heads, dim = cache.shape
    sizes = (len(row_first) - 1, int(row_first[-1]), heads, kv_heads, dim, block_size)
    work = Work(*sizes, int(cache.dtype == torch.bfloat16), threads, *(array.ctypes.data for array in arrays))
    return Described(work, arrays)


def find(threads: int, library: Path | None = None) -> NativeAttention | None:
    """The kernel if it was compiled (to `library`, else `LIBRARY`) and loads here, else None. The log says which."""
    library = library or LIBRARY
    if not library.is_file():
        _log.info("attention by torch over gathered pages: the kernel was not compiled (no C compiler at install?)")
        return None
    try:
        kernel = NativeAttention(threads, library)
    except (OSError, AttributeError) as error:
        _log.warning("computing by torch: %s cannot be used: %s; install again to compile it anew", library, error)
        return None
    _log.info("attention by the compiled kernel, with %s", LEVELS[kernel.level])
    return kernel

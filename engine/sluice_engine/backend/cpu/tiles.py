"""From how many rows on AMX tiles compute a product or an attention tile: measured at load, on one thread.

Weights, keys and values have one layout for tiles and for AVX-512, so that each call can take either form. Which is
faster depends on processor and shape: with few rows both wait for memory, and a tile that is not full does work for
nothing. Tiles that give other numbers than AVX-512 are not used.
"""

import ctypes
import logging
import time
from collections.abc import Callable
from typing import Final

import torch

from sluice_engine.backend.cpu.structs import Layer, Product, Work

TILE_LEVEL: Final = 4  # of the library's instruction levels, the first with tiles
ROWS: Final = (1, 4, 16, 64)
ATTENTION_ROWS: Final = (1, 4, 16, 32)  # 32 query rows are what the library puts into one tile of a prompt's chunk
_RUNS: Final = 5  # the fastest counts
_OUTPUTS: Final = 2048  # at most, of a product that is timed
_CONTEXT: Final = 512  # keys that a timed attention reads
_BLOCK: Final = 16  # keys of a block
_CLOSE: Final = 2**-6  # relative to the largest output; both sum in float32 and round to bf16
_log = logging.getLogger(__name__)

Compute = Callable[
    [int, bool], torch.Tensor
]  # with so many rows, by tiles or not: the output, overwritten by the next call
Choose = Callable[[Compute, tuple[int, ...]], int]  # among these numbers of rows


def least_faster(compute: Compute, rows: tuple[int, ...]) -> int:
    """The least number of rows from which on tiles are faster at each larger one too; 0 if there is none."""
    least = 0
    for count in reversed(rows):
        plain, tiled = compute(count, False).float().clone(), compute(count, True).float()
        if not bool((plain - tiled).abs().max() <= _CLOSE * plain.abs().max()):
            _log.warning("AMX tiles give other numbers than AVX-512 with %d rows: they are not used there", count)
            return least
        if _seconds(compute, count, True) >= _seconds(compute, count, False):
            return least
        least = count
    return least


def _seconds(compute: Compute, rows: int, tiled: bool) -> float:
    found = []
    for _ in range(_RUNS):
        begun = time.perf_counter()
        compute(rows, tiled)
        found.append(time.perf_counter() - begun)
    return min(found)


def product_rows(library: ctypes.CDLL, product: Product, bf16: bool, choose: Choose) -> int:
    """For `product`, whose weight is packed and whose inputs are bfloat16 if `bf16`, else float32."""
    if not bf16 and not product.int8:
        return 0
    dtype = torch.bfloat16 if bf16 else torch.float32
    outer = min(product.outer, _OUTPUTS)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(max(ROWS), product.inner, generator=generator).to(dtype)
    out = torch.zeros(max(ROWS), outer)  # wide enough for scores, which are float32
    library.sluice_prepared_bytes.restype = ctypes.c_int64
    room = int(library.sluice_prepared_bytes(ctypes.c_int64(product.inner)))
    prepared = torch.zeros(len(rows) * room, dtype=torch.uint8)

    def compute(count: int, tiled: bool) -> torch.Tensor:
        plain = 0  # `enum kind` of kernels.h: neither added nor gated, so that runs repeat
        tried = Product(product.packed, product.bias, product.inner, outer, plain, product.int8, int(tiled))
        library.sluice_multiply(
            ctypes.byref(tried),
            ctypes.c_void_p(rows.data_ptr()),
            ctypes.c_int64(count),
            ctypes.c_void_p(out.data_ptr()),
            ctypes.c_int64(outer),
            int(bf16),
            ctypes.c_void_p(prepared.data_ptr()),
            TILE_LEVEL,
        )
        return out.view(dtype).reshape(-1)[: count * outer]

    return choose(compute, ROWS)


def attention_rows(library: ctypes.CDLL, dim: int, choose: Choose) -> int:
    """For bfloat16 heads of `dim`: query rows of one KV head."""
    if dim % 32:
        return 0
    most, blocks = max(ATTENTION_ROWS), -(-(_CONTEXT + max(ATTENTION_ROWS)) // _BLOCK)
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(most, dim, generator=generator).to(torch.bfloat16) for _ in range(3))
    caches = [torch.randn(blocks, _BLOCK, dim, generator=generator).to(torch.bfloat16) for _ in range(2)]
    out = torch.zeros(most, dim, dtype=torch.bfloat16)
    tables, slots = torch.arange(blocks), _CONTEXT + torch.arange(most)
    start, table_first = torch.tensor([_CONTEXT]), torch.zeros(1, dtype=torch.int64)
    layer = Layer(
        query.data_ptr(),
        dim,
        dim,
        *(key.data_ptr(), value.data_ptr(), dim, dim, dim, dim),
        *(cache.data_ptr() for cache in caches),
        out.data_ptr(),
        scale=dim**-0.5,
    )

    def compute(count: int, tiled: bool) -> torch.Tensor:
        firsts = torch.tensor([0, count])
        addresses = (tensor.data_ptr() for tensor in (firsts, start, table_first, tables, slots))
        work = Work(1, count, 1, 1, dim, _BLOCK, 1, 1, *addresses, int(tiled))
        library.sluice_attend(ctypes.byref(work), ctypes.byref(layer), TILE_LEVEL)
        return out[:count]

    return choose(compute, ATTENTION_ROWS)

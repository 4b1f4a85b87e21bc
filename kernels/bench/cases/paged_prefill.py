"""Correctness cases of `paged_prefill`. Padding rows must not be written."""

from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import torch
from bench.cases.memory import FILL, Mismatch, guarded, poisoned
from bench.cases.paged import TOLERANCE, Context, contexts, moved, queries, same

from sluice_kernels.paged_prefill.reference import paged_prefill_reference
from sluice_kernels.paged_prefill.triton import paged_prefill_triton


@dataclass(frozen=True)
class Case(Context):
    """One call. chunks[i] is how many of the newest tokens of sequence i are queries."""

    chunks: tuple[int, ...] = ()
    padding_rows: int = 0


NAMED: Final[dict[str, Case]] = {
    "no sequences": Case(()),
    "one token": Case((1,), chunks=(1,)),
    "whole prompt": Case((77,), chunks=(77,)),
    "a chunk after a cached context": Case((150,), chunks=(40,)),
    "ragged": Case((150, 64, 3, 65, 90), chunks=(1, 64, 2, 33, 5), padding_rows=3),
    "empty chunks among full ones": Case((0, 33, 5, 64), chunks=(0, 33, 0, 9), padding_rows=1),
    "drafted tokens": Case((90, 17, 64), chunks=(4, 4, 4)),
    "chunks around a tile": Case((63, 64, 65), chunks=(63, 64, 65)),
    "contexts around a tile": Case((127, 128, 129), chunks=(2, 2, 2)),
    "head dim 64, group of 16": Case((50,), q_heads=16, kv_heads=1, head_dim=64, block_size=32, chunks=(20,)),
    "head dim 80": Case((50,), head_dim=80, chunks=(30,)),
    "head dim 96": Case((50,), head_dim=96, chunks=(30,), block_size=32),
    "head dim 128": Case((130, 9), q_heads=8, kv_heads=2, head_dim=128, chunks=(70, 9), dtype=torch.bfloat16),
    "head dim 192": Case((50,), head_dim=192, chunks=(30,)),
    "head dim 256": Case((50,), head_dim=256, chunks=(30,), dtype=torch.float16),
    "group of 7": Case((50, 70), q_heads=14, kv_heads=2, chunks=(50, 20)),
    "odd block size": Case((50, 70), block_size=5, chunks=(50, 20)),
    "peaked softmax": Case((90,), magnitude=30.0, chunks=(90,)),
    "window of one token": Case((90,), window=1, chunks=(70,)),
    "window that hides whole tiles": Case((400, 300), window=40, chunks=(90, 3)),
    "window longer than the context": Case((60,), window=100, chunks=(60,)),
    "soft cap": Case((90,), softcap=5.0, magnitude=4.0, chunks=(90,)),
    "sinks": Case((90, 5), sinks=True, chunks=(70, 5)),
    "window, soft cap and sinks": Case(
        (130, 20), window=33, softcap=20.0, sinks=True, dtype=torch.bfloat16, chunks=(90, 4)
    ),
    "fp8 cache": Case((90, 20), fp8=True, chunks=(70, 3)),
    "mixed and drafted rows": Case((40, 90, 1, 64, 17, 33), chunks=(1, 70, 1, 4, 4, 33), dtype=torch.bfloat16),
    "chunks around a block of 32": Case((31, 32, 33, 64), chunks=(31, 32, 33, 1), block_size=32),
    "one token after a cached context, no grouping": Case((129, 65), 3, 3, 64, chunks=(1, 1)),
    "window around a tile": Case((200, 64, 65), window=64, chunks=(70, 64, 1)),
    "fp8 cache, soft cap and sinks, group of 16": Case(
        (90, 33), 16, 1, 96, 32, fp8=True, softcap=5.0, sinks=True, chunks=(70, 2), dtype=torch.bfloat16
    ),
    "fp8 cache, window, bfloat16": Case((90, 20), fp8=True, window=30, dtype=torch.bfloat16, chunks=(70, 3)),
}

# Too large for the interpreter; these cases run only compiled.
LARGE: Final[dict[str, Case]] = {
    f"{str(dtype).removeprefix('torch.')}{', fp8' if fp8 else ''}, {q}/{kv} heads of {dim}, window {window}": Case(
        (2048, 4096, 700, 33, 1, 1025), chunks=(2048, 512, 700, 4, 1, 65),
        q_heads=q, kv_heads=kv, head_dim=dim, dtype=dtype, fp8=fp8, window=window, padding_rows=7,
    )
    for dtype in TOLERANCE
    for fp8 in (False, True)
    for window in (None, 300)
    for q, kv, dim in ((32, 8, 128), (28, 4, 128), (12, 12, 64), (8, 1, 256), (4, 2, 80))
} | {
    "8,192 after 0": Case((8192,), 8, 2, 128, dtype=torch.bfloat16, chunks=(8192,)),
    "8,192 after 120k, window": Case((131072,), 8, 2, 128, dtype=torch.bfloat16, window=4096, chunks=(8192,)),
    "100 after 128k": Case((131172,), 8, 2, 128, dtype=torch.bfloat16, chunks=(100,)),
    "one after 128k, fp8": Case((131073, 131072), 8, 2, 128, 32, dtype=torch.bfloat16, fp8=True, chunks=(1, 1)),
    "2,048 after 128k": Case((133120,), 2, 1, 128, dtype=torch.bfloat16, chunks=(2048,)),
}  # fmt: skip


def compare(case: Case, device: str) -> float:
    """Runs the kernel and the reference. Returns the largest error relative to the allowed one. Raises Mismatch."""
    total = sum(case.chunks)
    query = queries(case, total + case.padding_rows)
    kv, rule = contexts(case, case.chunks)
    starts = torch.tensor([0, *accumulate(case.chunks)], dtype=torch.int32)
    expected = paged_prefill_reference(query, starts, kv, rule)
    with guarded(device):
        given = poisoned(query, 8, device)
        got = paged_prefill_triton(given, starts.to(device), *moved(kv, rule, device)).cpu()
    if case.chunks and bool((got[total:].contiguous().view(torch.uint8) != FILL).any()):
        raise Mismatch(f"{case}: wrote into padding rows")
    return same(case, got[:total], expected[:total])

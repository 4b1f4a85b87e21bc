"""Correctness cases of `paged_decode`."""

from dataclasses import dataclass
from typing import Final

import torch
from bench.cases.memory import Mismatch, guarded, poisoned
from bench.cases.paged import TOLERANCE, Context, contexts, moved, queries, same

from sluice_kernels.paged_decode.reference import paged_decode_reference
from sluice_kernels.paged_decode.triton import paged_decode_triton


@dataclass(frozen=True)
class Case(Context):
    """One call. splits None: derived from the shapes."""

    splits: int | None = None


NAMED: Final[dict[str, Case]] = {
    "one token": Case((1,)),
    "one sequence": Case((77,)),
    "empty rows among full ones": Case((0, 33, 0, 1, 64, 0)),
    "empty rows among full ones, split": Case((0, 33, 0, 1, 64, 0), splits=2),
    "only padding": Case((0, 0, 0)),
    "no sequences": Case(()),
    "around a block": Case((15, 16, 17, 31, 32, 33)),
    "around a tile": Case((63, 64, 65, 127, 128, 129)),
    "around a split": Case((255, 256, 257), splits=2),
    "around the end of a split": Case((127, 128, 129, 191, 192, 193), splits=2),
    "odd head dim": Case((5, 70), head_dim=40),
    "tiny head dim": Case((5, 70), head_dim=8),
    "head dim 64, group of 16": Case((50, 9), q_heads=16, kv_heads=1, head_dim=64, block_size=32),
    "head dim 80": Case((50, 9), head_dim=80),
    "head dim 96": Case((50, 9), head_dim=96, block_size=32),
    "head dim 128, group of 8": Case((130, 3), q_heads=16, kv_heads=2, head_dim=128),
    "head dim 192": Case((70, 3), head_dim=192),
    "head dim 256": Case((70, 3), head_dim=256, dtype=torch.bfloat16),
    "group of 7": Case((50, 9), q_heads=14, kv_heads=2),
    "no grouping": Case((50, 9), q_heads=3, kv_heads=3),
    "one key-value head, many query heads": Case((50,), q_heads=20, kv_heads=1),
    "odd block size": Case((50, 7, 20), block_size=5),
    "large blocks": Case((50, 130), block_size=128),
    "more splits than tiles": Case((70, 1, 0), splits=16),
    "two splits": Case((300, 129, 64), splits=2),
    "peaked softmax": Case((90, 200), magnitude=30.0, splits=4),
    "huge values": Case((90, 20), value_magnitude=1e4),
    "tiny everything": Case((90, 20), magnitude=1e-4, value_magnitude=1e-4),
    "half precision": Case((100, 0, 31), dtype=torch.float16, splits=2),
    "bfloat16": Case((100, 0, 31), dtype=torch.bfloat16, splits=2),
    "bfloat16, peaked": Case((100, 31), dtype=torch.bfloat16, magnitude=20.0),
    "window of one token": Case((1, 2, 90), window=1),
    "window around a tile": Case((200, 64, 65, 10), window=64),
    "window that hides whole tiles": Case((400, 39, 0), window=40, splits=1),
    "window that hides whole tiles, split": Case((400, 390, 0), window=150, splits=4),
    "soft cap": Case((90, 20), softcap=5.0, magnitude=4.0),
    "sinks": Case((90, 20, 0), sinks=True),
    "sinks, split": Case((90, 1, 0), sinks=True, splits=2),
    "window, soft cap and sinks": Case((130, 20, 0), window=33, softcap=20.0, sinks=True, dtype=torch.bfloat16),
    "fp8 cache": Case((90, 20, 0), fp8=True),
    "fp8 cache, window and sinks, blocks of 32": Case(
        (130, 31, 32, 33, 0),
        fp8=True,
        window=40,
        sinks=True,
        block_size=32,
        head_dim=96,
        dtype=torch.bfloat16,
        splits=2,
    ),
    "fp8 cache, soft cap, group of 16": Case((64, 65), 16, 1, 80, fp8=True, softcap=5.0, dtype=torch.float16),
    "contexts of 0 and 1, no grouping, blocks of 32": Case((0, 1, 32), 3, 3, 192, 32, dtype=torch.bfloat16, splits=1),
    "window around a block": Case((15, 16, 17, 33), window=16, splits=1),
    "window around a split": Case((255, 256, 257, 300), window=128, splits=2),
    "fp8 cache, split, bfloat16": Case((90, 20, 0), fp8=True, splits=2, dtype=torch.bfloat16, head_dim=128),
}

# Too large for the interpreter; these cases run only compiled.
LARGE: Final[dict[str, Case]] = {
    f"{str(dtype).removeprefix('torch.')}{', fp8' if fp8 else ''}, contexts to {most}, {q}/{kv} heads of {dim}": Case(
        tuple((most * (row * 37 % 64)) // 63 for row in range(64)),
        q_heads=q, kv_heads=kv, head_dim=dim, dtype=dtype, fp8=fp8, seed=most,
    )
    for dtype in TOLERANCE
    for fp8 in (False, True)
    for most, q, kv, dim in ((4096, 32, 8, 128), (1000, 28, 4, 128), (513, 12, 12, 64), (2048, 16, 1, 256))
} | {
    "128k": Case((131072, 131071, 131073, 1, 0), 32, 8, 128, dtype=torch.bfloat16),
    "128k, fp8, blocks of 32": Case((131072, 131071, 131073, 1), 16, 1, 256, 32, dtype=torch.bfloat16, fp8=True),
    "128k, window": Case((131072, 131071, 1), 32, 8, 128, dtype=torch.bfloat16, window=4096, sinks=True),
}  # fmt: skip


def compare(case: Case, device: str) -> float:
    """Runs the kernel and the reference. Returns the largest error relative to the allowed one. Raises Mismatch."""
    query = queries(case, len(case.lengths))
    kv, rule = contexts(case, (1,) * len(case.lengths))
    expected = paged_decode_reference(query, kv, rule)
    with guarded(device):
        got = paged_decode_triton(poisoned(query, 8, device), *moved(kv, rule, device), case.splits).cpu()
    if bool((got[kv.contexts == 0] != 0).any()):
        raise Mismatch(f"{case}: a padding sequence is not zero")
    return same(case, got, expected)

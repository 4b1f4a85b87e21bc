"""Paged contexts with poison for both attention kernels: NaN in every key and value that must not be read, and 2³¹−1 in
every table entry that must not be read. Everything is normal within ±4 times its magnitude.
"""

from dataclasses import dataclass
from typing import Final

import torch
from bench.cases.memory import Mismatch

from sluice_kernels.fp8 import FP8
from sluice_kernels.paged import AttentionRule, PagedKV

# Relative to the largest value: rounding of the softmax weights, and of the output to the input's dtype.
TOLERANCE: Final = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 1.6e-2}
FLOAT32_EPSILON: Final = 2.0**-23
POISONED_BLOCK: Final = 2**31 - 1
LIMIT: Final = 4.0  # clamping makes the error bound valid


@dataclass(frozen=True)
class Context:
    """The contexts of a call, in tokens, one per sequence, 0 for a padding sequence; and the rule of its layer."""

    lengths: tuple[int, ...]
    q_heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    block_size: int = 16
    dtype: torch.dtype = torch.float32
    fp8: bool = False
    window: int | None = None
    softcap: float | None = None
    sinks: bool = False
    magnitude: float = 1.0  # of queries and keys; large values turn the softmax into a maximum
    value_magnitude: float = 1.0
    seed: int = 0


def queries(case: Context, rows: int) -> torch.Tensor:
    """[rows, q_heads, head_dim]."""
    generator = torch.Generator().manual_seed(case.seed + 1)
    return _normal((rows, case.q_heads, case.head_dim), case.magnitude, generator).to(case.dtype)


def contexts(case: Context, newest: tuple[int, ...]) -> tuple[PagedKV, AttentionRule]:
    """The cache and rule of a call in which sequence i has its newest[i] last tokens as queries."""
    generator = torch.Generator().manual_seed(case.seed)
    needed = [-(-length // case.block_size) for length in case.lengths]
    num_blocks = sum(needed) + 3
    shape = (num_blocks, case.block_size, case.kv_heads, case.head_dim)
    keys, values = (_normal(shape, size, generator) for size in (case.magnitude, case.value_magnitude))
    order = torch.randperm(num_blocks, generator=generator).to(torch.int32)
    tables = torch.full((len(case.lengths), max(needed, default=0) + 2), POISONED_BLOCK, dtype=torch.int32)
    unread = torch.ones(num_blocks, case.block_size, dtype=torch.bool)
    taken = 0
    for row, (length, count) in enumerate(zip(case.lengths, needed, strict=True)):
        first = 0 if case.window is None else max(0, length - max(1, newest[row]) + 1 - case.window)
        blocks = order[taken : taken + count]
        taken += count
        for index in range(first // case.block_size, count):
            tables[row, index] = blocks[index]
            at = index * case.block_size
            unread[int(blocks[index]), max(0, first - at) : min(case.block_size, length - at)] = False
    scales = [torch.rand(case.kv_heads, generator=generator) + 0.5 if case.fp8 else None for _ in range(2)]
    dtype = FP8 if case.fp8 else case.dtype
    keys[unread] = float("nan")
    values[unread] = float("nan")
    keys, values = keys.to(dtype), values.to(dtype)
    sinks = torch.randn(case.q_heads, generator=generator) if case.sinks else None
    lengths = torch.tensor(case.lengths, dtype=torch.int32)
    return PagedKV(keys, values, tables, lengths, *scales), AttentionRule(None, case.window, case.softcap, sinks)


def moved(kv: PagedKV, rule: AttentionRule, device: str) -> tuple[PagedKV, AttentionRule]:
    """Both on the device."""
    tensors = (kv.keys, kv.values, kv.tables, kv.contexts, kv.key_scales, kv.value_scales)
    sinks = None if rule.sinks is None else rule.sinks.to(device)
    placed = (None if tensor is None else tensor.to(device) for tensor in tensors)
    return PagedKV(*placed), AttentionRule(rule.scale, rule.window, rule.softcap, sinks)


def same(case: Context, got: torch.Tensor, expected: torch.Tensor) -> float:
    """Returns the largest error relative to the largest value that is possible. Raises Mismatch."""
    got = got.cpu()
    if got.shape != expected.shape or got.dtype != expected.dtype:
        raise Mismatch(f"{case}: {tuple(got.shape)} {got.dtype} instead of {tuple(expected.shape)} {expected.dtype}")
    if got.numel() == 0:
        return 0.0
    scale = 1.5 if case.fp8 else 1.0  # the largest scale of a head
    error = float((got.double() - expected.double()).abs().max()) / max(case.value_magnitude * LIMIT * scale, 1e-30)
    # A score is a sum of head_dim products, each rounded; the exponential turns its absolute error into a relative one.
    score_bound = (case.magnitude * LIMIT) ** 2 * case.head_dim**0.5 * scale
    allowed = TOLERANCE[case.dtype] + 4 * score_bound * FLOAT32_EPSILON
    if case.softcap is not None:
        allowed += 4 * case.softcap * FLOAT32_EPSILON
    if not error <= allowed:
        raise Mismatch(f"{case}: relative error {error:.3g}, allowed {allowed:.3g}")
    return error / allowed


def _normal(size: tuple[int, ...], magnitude: float, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(size, generator=generator).clamp(-LIMIT, LIMIT) * magnitude

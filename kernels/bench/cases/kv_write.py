"""Correctness cases of `kv_write`. Query, key and value are views of one QKV buffer between NaN; every element of the
caches outside the written slots must stay as it is.
"""

from dataclasses import dataclass
from typing import Final

import torch
from bench.cases.compare import same
from bench.cases.memory import Mismatch, guarded, poisoned

from sluice_kernels.fp8 import FP8
from sluice_kernels.kv_write.reference import HeadNorm, PagedCache, Rope, kv_write_reference
from sluice_kernels.kv_write.triton import kv_write_triton


@dataclass(frozen=True)
class Case:
    """One call. `unwritten` tokens have slot −1; `bad_token` has a NaN in every head. rotary_dim 0: no rotation. Beyond a
    magnitude of 448 an fp8 cache saturates.
    """

    tokens: int
    q_heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    rotary_dim: int = 32
    norm: bool = False
    weight_offset: float = 0.0
    dtype: torch.dtype = torch.float32
    fp8: bool = False
    block_size: int = 16
    unwritten: tuple[int, ...] = ()
    bad_token: int | None = None
    wide_indices: bool = False
    magnitude: float = 1.0
    seed: int = 0


NAMED: Final = {
    "no tokens": Case(0),
    "one token": Case(1),
    "partial rotary": Case(9, rotary_dim=8),
    "partial rotary of an odd part, norm": Case(9, head_dim=80, rotary_dim=20, norm=True),
    "no rotary": Case(5, rotary_dim=0, norm=True, weight_offset=1.0),
    "norm, bfloat16": Case(7, 8, 2, 128, 128, norm=True, dtype=torch.bfloat16),
    "group of 7, head dim 96": Case(5, 14, 2, 96, 96, dtype=torch.float16),
    "group of 16": Case(3, 16, 1, 64, 64),
    "no grouping, head dim 192": Case(11, 3, 3, 192, 64),
    "head dim 256": Case(5, 8, 2, 256, 128, norm=True, dtype=torch.bfloat16),
    "padding tokens": Case(6, unwritten=(0, 3, 5)),
    "only padding": Case(4, unwritten=(0, 1, 2, 3)),
    "fp8": Case(9, 8, 2, 64, 64, dtype=torch.bfloat16, fp8=True, unwritten=(2,)),
    "fp8 that saturates": Case(9, 8, 2, 64, 32, dtype=torch.bfloat16, fp8=True, magnitude=600.0),
    "fp8 of tiny values": Case(9, 8, 2, 64, 64, fp8=True, norm=True, magnitude=1e-4),
    "partial rotary, head dim 256, fp8": Case(5, 4, 2, 256, 64, norm=True, dtype=torch.bfloat16, fp8=True),
    "a NaN stays in its token, partial rotary, bfloat16": Case(
        9, 4, 2, 96, 24, norm=True, dtype=torch.bfloat16, bad_token=0
    ),
    "blocks of 32, wide indices": Case(40, block_size=32, wide_indices=True),
    "a NaN stays in its token": Case(9, bad_token=4, norm=True),
    "a NaN stays in its token, fp8": Case(9, bad_token=4, norm=True, fp8=True),
}
LARGE: Final = {
    f"{tokens} tokens, {q}/{kv} heads of {dim} {str(dtype).removeprefix('torch.')}{' fp8' if fp8 else ''}": Case(
        tokens, q, kv, dim, dim, norm=True, dtype=dtype, fp8=fp8, unwritten=(1, 7)
    )
    for dtype in (torch.bfloat16, torch.float16, torch.float32)
    for fp8 in (False, True)
    for tokens, q, kv, dim in ((4096, 32, 8, 128), (1023, 28, 4, 128), (513, 64, 8, 64), (300, 16, 1, 256))
}


def compare(case: Case, device: str) -> float:
    """Runs the kernel and the reference. Returns the largest error relative to the allowed one. Raises Mismatch."""
    generator = torch.Generator().manual_seed(case.seed)
    heads = case.q_heads + 2 * case.kv_heads
    qkv = (torch.randn(case.tokens, heads, case.head_dim, generator=generator) * case.magnitude).to(case.dtype)
    if case.bad_token is not None:
        qkv[case.bad_token, :, case.head_dim // 2] = float("nan")
    norm = _norm(case, generator) if case.norm else None
    rope = _rope(case, generator) if case.rotary_dim else None
    cache = _cache(case, generator)
    moved = _on(cache, device)
    query, key, value = _split(case, qkv)
    expected = kv_write_reference(query, key, value, cache, rope, norm)
    query, key, value = _split(case, poisoned(qkv, 5, device))
    with guarded(device):
        got = kv_write_triton(
            query, key, value, moved,
            None if rope is None else Rope(rope.table.to(device), rope.positions.to(device)),
            None if norm is None else HeadNorm(norm.query.to(device), norm.key.to(device), 1e-6, case.weight_offset),
        )  # fmt: skip
    # Rotation subtracts two products: the error is relative to the larger one.
    slack = 1e-6
    errors = [same(case, "query", got, expected, slack)]
    for name, ours, theirs in (("keys", moved.keys, cache.keys), ("values", moved.values, cache.values)):
        errors.append(same(case, name, ours, theirs, 2.0**-9 / 448 if case.fp8 else slack))
        _untouched(case, name, ours.cpu(), cache.slots)
    return max(errors)


def _split(case: Case, qkv: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return qkv.split((case.q_heads, case.kv_heads, case.kv_heads), 1)


def _untouched(case: Case, name: str, cache: torch.Tensor, slots: torch.Tensor) -> None:
    """Every slot that no token has still holds the filling."""
    left = torch.ones(cache.shape[0] * cache.shape[1], dtype=torch.bool)
    left[slots[slots >= 0].long()] = False
    if bool((cache.float().flatten(0, 1)[left] != -3.0).any()):
        raise Mismatch(f"{case}: wrote into {name} outside the slots")


def _norm(case: Case, generator: torch.Generator) -> HeadNorm:
    query, key = (torch.randn(case.head_dim, generator=generator).to(case.dtype) for _ in range(2))
    return HeadNorm(query, key, 1e-6, case.weight_offset)


def _rope(case: Case, generator: torch.Generator) -> Rope:
    positions = torch.randint(0, 500, (case.tokens,), generator=generator)
    angles = torch.arange(500.0)[:, None] * 10000.0 ** -torch.linspace(0, 1, case.rotary_dim // 2)
    return Rope(torch.cat([angles.cos(), angles.sin()], 1), positions if case.wide_indices else positions.int())


def _cache(case: Case, generator: torch.Generator) -> PagedCache:
    blocks = case.tokens // case.block_size + 2
    dtype = FP8 if case.fp8 else case.dtype
    shape = (blocks, case.block_size, case.kv_heads, case.head_dim)
    slots = torch.randperm(blocks * case.block_size, generator=generator)[: case.tokens]
    slots[list(case.unwritten)] = -1
    scales = [torch.rand(case.kv_heads, generator=generator) + 0.5 if case.fp8 else None for _ in range(2)]
    keys, values = (torch.full(shape, -3.0).to(dtype) for _ in range(2))
    return PagedCache(keys, values, slots if case.wide_indices else slots.int(), *scales)


def _on(cache: PagedCache, device: str) -> PagedCache:
    tensors = (cache.keys, cache.values, cache.slots, cache.key_scales, cache.value_scales)
    return PagedCache(*(None if tensor is None else tensor.clone().to(device) for tensor in tensors))

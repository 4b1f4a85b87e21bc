"""The calls whose kernels are compiled ahead of time: public functions on meta tensors with the shapes of real models.

A default call is what a common model launches; it is compiled for every architecture, the others for sm_90.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch

from sluice_kernels.block_copy import block_copy
from sluice_kernels.grouped_weights import GroupedWeights
from sluice_kernels.kv_write import HeadNorm, PagedCache, Rope, kv_write
from sluice_kernels.moe import ExpertWeights, Routing, RoutingRule, Shared, moe, route
from sluice_kernels.paged_decode import AttentionRule, PagedKV, paged_decode
from sluice_kernels.paged_prefill import paged_prefill
from sluice_kernels.rms_norm import rms_norm, rms_norm_fp8
from sluice_kernels.sample import Bias, Draws, Penalties, Rows, sample, token_logprobs
from sluice_kernels.silu_mul import silu_mul, silu_mul_fp8
from sluice_kernels.w4a16 import w4a16
from sluice_kernels.w8a16 import w8a16

FP8: Final = torch.float8_e4m3fn
BF16: Final = torch.bfloat16
FP16: Final = torch.float16
FP32: Final = torch.float32
NAMES: Final = {BF16: "bf16", FP16: "fp16", FP32: "fp32", FP8: "fp8"}
DEFAULTS: Final = (BF16, FP16)
HEAD_DIMS: Final = (64, 80, 96, 128, 192, 256)
MAIN_DIMS: Final = (64, 128, 256)  # the others pad to one of these
GROUPS: Final = ((32, 32), (14, 2), (64, 8), (16, 1))  # query and key-value heads: groups of 1, 7, 8 and 16


@dataclass(frozen=True)
class Call:
    """`name` says what is special about it; `dtype` is the one of the input, `fp8` in the name marks fp8 beside it."""

    kernel: str
    name: str
    dtype: torch.dtype
    run: Callable[[], object]
    default: bool = False


def calls() -> Iterator[Call]:
    """All of them."""
    yield from _rms_norm()
    yield from _silu_mul()
    yield from _kv_write()
    yield from _paged_decode()
    yield from _paged_prefill()
    yield from _block_copy()
    yield from _sample()
    yield from _weight_only()
    yield from _moe()


def meta(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    """A tensor without memory."""
    return torch.empty(shape, dtype=dtype, device="meta")


def _rms_norm() -> Iterator[Call]:
    def norm(width: int, dtype: torch.dtype, *, fp8: bool = False, add: bool = True) -> Callable[[], object]:
        x = meta(256, width, dtype=dtype)
        return lambda: (rms_norm_fp8 if fp8 else rms_norm)(x, x[0], 1e-6, 0.0, x if add else None)

    for dtype in (BF16, FP16, FP32):
        yield Call("rms_norm", "width 4096, residual", dtype, norm(4096, dtype), default=dtype != FP32)
    for width in (64, 128, 896, 2048, 2880, 8192, 16384):
        yield Call("rms_norm", f"width {width}, residual", BF16, norm(width, BF16))
    yield Call("rms_norm", "width 16384, residual", FP32, norm(16384, FP32))
    yield Call("rms_norm", "width 4096", BF16, norm(4096, BF16, add=False))
    yield Call("rms_norm", "width 4096, residual, fp8", BF16, norm(4096, BF16, fp8=True))


def _silu_mul() -> Iterator[Call]:
    def product(width: int, dtype: torch.dtype, activation: str = "silu") -> Callable[[], object]:
        return lambda: silu_mul(meta(256, 2 * width, dtype=dtype), activation)

    for dtype in (BF16, FP16, FP32):
        yield Call("silu_mul", "width 14336", dtype, product(14336, dtype), default=dtype != FP32)
    for width in (128, 512, 1024, 28672):
        yield Call("silu_mul", f"width {width}", BF16, product(width, BF16))
    yield Call("silu_mul", "width 14336, gelu", BF16, product(14336, BF16, "gelu_tanh"))
    yield Call("silu_mul", "width 14336, fp8", BF16, lambda: silu_mul_fp8(meta(256, 28672)))


def _kv_write() -> Iterator[Call]:
    for dtype in (BF16, FP16, FP32):
        yield Call("kv_write", "32/8 heads of 128", dtype, _written((32, 8, 128), dtype), default=dtype != FP32)
    yield Call("kv_write", "32/8 heads of 128, norm", BF16, _written((32, 8, 128), BF16, norm=True))
    yield Call("kv_write", "32/8 heads of 128, fp8", BF16, _written((32, 8, 128), BF16, fp8=True))
    for dim in HEAD_DIMS:
        yield Call("kv_write", f"16/4 heads of {dim}, norm", BF16, _written((16, 4, dim), BF16, norm=True))
    for q_heads, kv_heads in GROUPS:
        yield Call("kv_write", f"{q_heads}/{kv_heads} heads of 64", BF16, _written((q_heads, kv_heads, 64), BF16))


def _written(
    heads: tuple[int, int, int], dtype: torch.dtype, *, norm: bool = False, fp8: bool = False
) -> Callable[[], object]:
    q_heads, kv_heads, dim = heads
    qkv = meta(256, q_heads + 2 * kv_heads, dim, dtype=dtype)
    query, key, value = qkv.split((q_heads, kv_heads, kv_heads), 1)
    pages = meta(1024, 16, kv_heads, dim, dtype=FP8 if fp8 else dtype)
    index, scales = meta(256, dtype=torch.int32), meta(kv_heads, dtype=FP32) if fp8 else None
    weight = meta(dim, dtype=dtype)
    cache = PagedCache(pages, pages, index, scales, scales)
    rope = Rope(meta(8192, dim, dtype=FP32), index)
    return lambda: kv_write(query, key, value, cache, rope, HeadNorm(weight, weight, 1e-6) if norm else None)


def _paged(sequences: int, heads: tuple[int, int, int], dtype: torch.dtype, fp8: bool, block_size: int) -> PagedKV:
    pages = meta(4096, block_size, heads[1], heads[2], dtype=FP8 if fp8 else dtype)
    scales = meta(heads[1], dtype=FP32) if fp8 else None
    tables = meta(sequences, 131072 // block_size, dtype=torch.int32)
    return PagedKV(pages, pages, tables, meta(sequences, dtype=torch.int32), scales, scales)


def _paged_decode() -> Iterator[Call]:
    def decode(
        sequences: int,
        heads: tuple[int, int, int],
        dtype: torch.dtype = BF16,
        rule: AttentionRule | None = None,
        *,
        fp8: bool = False,
        block_size: int = 16,
    ) -> Callable[[], object]:
        query, kv = meta(sequences, heads[0], heads[2], dtype=dtype), _paged(sequences, heads, dtype, fp8, block_size)
        return lambda: paged_decode(query, kv, rule or AttentionRule())

    for dtype in (BF16, FP16, FP32):
        name = "32/8 heads of 128"
        yield Call("paged_decode", f"256 × {name}", dtype, decode(256, (32, 8, 128), dtype), default=dtype != FP32)
    for dtype in DEFAULTS:
        run = decode(8, (32, 8, 128), dtype)
        yield Call("paged_decode", "8 × 32/8 heads of 128, split", dtype, run, default=True)
    yield Call("paged_decode", "256 × 32/8 heads of 128, blocks of 32", BF16, decode(256, (32, 8, 128), block_size=32))
    for dim in HEAD_DIMS:
        for dtype in DEFAULTS if dim in MAIN_DIMS else (BF16,):
            run = decode(256, (16, 4, dim), dtype)
            yield Call("paged_decode", f"256 × 16/4 heads of {dim}", dtype, run, default=dim in MAIN_DIMS)
    yield Call("paged_decode", "8 × 16/4 heads of 256, split", BF16, decode(8, (16, 4, 256)))
    for q_heads, kv_heads in GROUPS:
        run = decode(512, (q_heads, kv_heads, 64))
        yield Call("paged_decode", f"512 × {q_heads}/{kv_heads} heads of 64", BF16, run)
    for name, rule in RULES.items():
        yield Call("paged_decode", f"256 × 64/8 heads of 64, {name}", BF16, decode(256, (64, 8, 64), rule=rule))
    for dim in (64, 128, 256):
        yield Call("paged_decode", f"256 × 16/4 heads of {dim}, fp8", BF16, decode(256, (16, 4, dim), fp8=True))


RULES: Final = {
    "window": AttentionRule(window=4096),
    "soft cap": AttentionRule(softcap=50.0),
    "window and sinks": AttentionRule(window=128, sinks=meta(64, dtype=FP32)),
}


def _paged_prefill() -> Iterator[Call]:
    def prefill(
        chunks: int,
        heads: tuple[int, int, int],
        dtype: torch.dtype = BF16,
        rule: AttentionRule | None = None,
        *,
        fp8: bool = False,
        tokens: int = 4096,
    ) -> Callable[[], object]:
        query, kv = meta(tokens, heads[0], heads[2], dtype=dtype), _paged(chunks, heads, dtype, fp8, 16)
        return lambda: paged_prefill(query, meta(chunks + 1, dtype=torch.int32), kv, rule or AttentionRule())

    for dtype in DEFAULTS:
        yield Call("paged_prefill", "32/8 heads of 128", dtype, prefill(4, (32, 8, 128), dtype), default=True)
    for dim in HEAD_DIMS:
        for dtype in DEFAULTS if dim in (64, 256) else (BF16,):
            run = prefill(4, (16, 4, dim), dtype)
            yield Call("paged_prefill", f"16/4 heads of {dim}", dtype, run, default=dim in (64, 256))
    for dim in MAIN_DIMS:
        for dtype in DEFAULTS if dim == 128 else (BF16,):
            run = prefill(64, (16, 4, dim), dtype, tokens=256)
            yield Call("paged_prefill", f"16/4 heads of {dim}, drafted", dtype, run, default=dim == 128)
    for q_heads, kv_heads in GROUPS[1::2]:
        yield Call("paged_prefill", f"{q_heads}/{kv_heads} heads of 64", BF16, prefill(4, (q_heads, kv_heads, 64)))
    for name, rule in RULES.items():
        yield Call("paged_prefill", f"64/8 heads of 64, {name}", BF16, prefill(4, (64, 8, 64), rule=rule))
    for dim in (64, 128, 256):
        yield Call("paged_prefill", f"16/4 heads of {dim}, fp8", BF16, prefill(4, (16, 4, dim), fp8=True))


def _block_copy() -> Iterator[Call]:
    def copied(block: tuple[int, ...], dtype: torch.dtype) -> Callable[[], object]:
        pool = meta(4096, *block, dtype=dtype)
        return lambda: block_copy(pool, pool, torch.tensor([[1, 2], [3, 4]]))

    yield Call("block_copy", "blocks of 16 × 8 × 128", BF16, copied((16, 8, 128), BF16), default=True)
    yield Call("block_copy", "blocks of odd bytes", FP8, copied((3, 5), FP8))


def _sample() -> Iterator[Call]:
    def sampled(dtype: torch.dtype, *, edited: bool = False) -> Callable[[], object]:
        rows, slots, vocabulary = 256, 256, 128256
        column, index = meta(slots, dtype=FP32), meta(slots, dtype=torch.int32)
        wide = meta(slots, dtype=torch.int64)
        draws = Draws(column, column, index, meta(slots, dtype=torch.float64), wide)
        mask = penalties = bias = None
        if edited:
            mask = meta(rows, -(-vocabulary // 32), dtype=torch.int32)
            counts, seen = (meta(slots, vocabulary, dtype=kind) for kind in (torch.int32, torch.bool))
            penalties = Penalties(counts, seen, column, column, column)
            bias = Bias(meta(slots, 304, dtype=torch.int32), meta(slots, 304, dtype=FP32), index)
        return lambda: sample(meta(rows, vocabulary, dtype=dtype), Rows(index, wide, mask), draws, penalties, bias)

    for dtype in DEFAULTS:
        yield Call("sample", "256 × 128256", dtype, sampled(dtype), default=True)
        yield Call("sample", "256 × 128256, edited", dtype, sampled(dtype, edited=True), default=True)
    yield Call("sample", "256 × 128256, edited, float32 logits", FP32, sampled(FP32, edited=True))
    for count in (0, 1, 5, 20):
        logits, tokens = meta(256, 128256), meta(256, dtype=torch.int64)
        yield Call("sample", f"{count} logprobs", BF16, partial(token_logprobs, logits, tokens, count))


def _weight_only() -> Iterator[Call]:
    def multiplied(bits: int, rows: int, shape: tuple[int, int], dtype: torch.dtype = BF16) -> Callable[[], object]:
        inner, outputs = shape
        groups = inner // 128
        weights = GroupedWeights(
            meta(inner * bits // 32, outputs, dtype=torch.int32), meta(groups, outputs, dtype=FP16),
            meta(groups, outputs, dtype=torch.int16),
        )  # fmt: skip
        return lambda: (w4a16 if bits == 4 else w8a16)(meta(rows, inner, dtype=dtype), weights)

    for bits in (4, 8):
        name = f"w{bits}a16"
        for dtype in DEFAULTS:
            for rows in (16, 32, 64):  # two splits on each architecture
                run = multiplied(bits, rows, (4096, 14336), dtype)
                yield Call(name, f"{name}, {rows} × 4096 × 14336", dtype, run, default=True)
        yield Call(name, f"{name}, 16 × 4096 × 14336", FP32, multiplied(bits, 16, (4096, 14336), FP32))
        yield Call(name, f"{name}, 16 × 4096 × 128000, one split", BF16, multiplied(bits, 16, (4096, 128000)))


def _moe() -> Iterator[Call]:
    def chosen(rows: int, experts: int, top_k: int, dtype: torch.dtype = BF16) -> Callable[[], object]:
        return lambda: route(meta(rows, experts, dtype=dtype), RoutingRule(top_k))

    def computed(
        rows: int, shape: tuple[int, int, int, int], dtype: torch.dtype = BF16, *, shared: bool = False
    ) -> Callable[[], object]:
        experts, top_k, hidden, inner = shape
        x = meta(rows, hidden, dtype=dtype)
        gate_up, down = meta(experts, 2 * inner, hidden, dtype=dtype), meta(experts, hidden, inner, dtype=dtype)
        routing = Routing(meta(rows, top_k, dtype=torch.int32), meta(rows, top_k, dtype=FP32))
        others = Shared(x, meta(rows, 1, dtype=dtype)) if shared else None
        return lambda: moe(x, ExpertWeights(gate_up, down), routing, others)

    for experts, top_k in ((8, 2), (128, 8)):
        for dtype in DEFAULTS:
            yield Call("moe", f"top-{top_k} of {experts}", dtype, chosen(256, experts, top_k, dtype), default=True)
    yield Call("moe", "top-16 of 512", FP32, chosen(256, 512, 16, FP32))
    mixtral, qwen = (8, 2, 4096, 14336), (128, 8, 2048, 768)
    for name, shape in (("8 × 4096 × 14336", mixtral), ("128 × 2048 × 768", qwen)):
        experts, top_k = shape[:2]
        for dtype in DEFAULTS:
            for size, mean in (("few", 4), ("some", 32)):
                rows = mean * experts // top_k
                yield Call("moe", f"{name}, {size} rows", dtype, computed(rows, shape, dtype), default=True)
    yield Call("moe", "8 × 4096 × 14336, many rows", FP16, computed(1024, mixtral, FP16), default=True)
    yield Call("moe", "8 × 4096 × 14336, 100 rows per expert", BF16, computed(400, mixtral), default=True)
    yield Call("moe", "60 × 2048 × 1408, few rows, shared expert", BF16, computed(60, (60, 4, 2048, 1408), shared=True))
    yield Call("moe", "60 × 2048 × 1408, many rows", BF16, computed(1 << 14, (60, 4, 2048, 1408)))  # torch's product
    yield Call("moe", "8 × 4096 × 14336", FP32, computed(64, mixtral, FP32))

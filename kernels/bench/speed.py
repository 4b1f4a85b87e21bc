"""Measures every kernel on the shapes of an 8B model, and torch's attention on equal contiguous work.

The triton functions are called directly, so that a rehearsal goes through the same launches in the interpreter.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
from bench.ceilings import Ceilings, seconds_of
from bench.report import Result
from torch.nn.functional import scaled_dot_product_attention

from sluice_kernels.block_copy.triton import block_copy_triton
from sluice_kernels.fp8 import FP8
from sluice_kernels.grouped_weights import GROUP, GroupedWeights
from sluice_kernels.kv_write.reference import HeadNorm, PagedCache, Rope
from sluice_kernels.kv_write.triton import kv_write_triton
from sluice_kernels.moe.grouped import moe_grouped
from sluice_kernels.moe.reference import ExpertWeights, Routing, RoutingRule
from sluice_kernels.moe.routing import route_triton
from sluice_kernels.moe.triton import moe_triton
from sluice_kernels.paged import AttentionRule, PagedKV
from sluice_kernels.paged_decode.triton import paged_decode_triton
from sluice_kernels.paged_prefill.triton import paged_prefill_triton
from sluice_kernels.rms_norm.triton import rms_norm_triton
from sluice_kernels.sample.reference import Draws, Rows
from sluice_kernels.sample.triton import sample_triton
from sluice_kernels.silu_mul.triton import silu_mul_triton
from sluice_kernels.w4a16.triton import w4a16_triton
from sluice_kernels.w8a16.triton import w8a16_triton

BLOCK: Final = 16
FEW_ROWS: Final = (1, 8, 32)


@dataclass(frozen=True)
class Sizes:
    """Of a model and its load."""

    tokens: int = 8192
    width: int = 4096
    inner: int = 14336
    q_heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    batch: int = 64
    context: int = 4096
    vocabulary: int = 128256
    sampled: int = 256
    experts: int = 128  # Qwen3-30B-A3B's
    top_k: int = 8
    expert_hidden: int = 2048
    expert_inner: int = 768


SMALL: Final = Sizes(24, 64, 96, 4, 2, 16, 2, 64, 600, 2, 4, 2, 64, 32)


@dataclass(frozen=True)
class Work:
    """One thing to measure."""

    what: str
    shape: str
    call: Callable[[], object]
    bytes: int
    flops: int = 0


def measure(device: str, ceilings: Ceilings, *, small: bool) -> Iterator[Result]:
    """Yields one result after the other; tensors of a finished one are freed."""
    sizes = SMALL if small else Sizes()
    torch.manual_seed(0)
    for group in GROUPS:
        for work in group(sizes, device):
            seconds = seconds_of(work.call, device)
            fraction = ceilings.floor(work.bytes, work.flops) / seconds
            yield Result(work.what, work.shape, seconds, work.bytes, work.flops, round(fraction, 4))


def normal(*shape: int, device: str) -> torch.Tensor:
    """bfloat16, of this shape."""
    return torch.randn(shape, device=device).to(torch.bfloat16)


def _elementwise(sizes: Sizes, device: str) -> Iterator[Work]:
    x, residual = (normal(sizes.tokens, sizes.width, device=device) for _ in range(2))
    weight = normal(sizes.width, device=device)
    shape = f"{sizes.tokens} × {sizes.width}"
    yield Work("rms_norm with residual", shape, lambda: rms_norm_triton(x, weight, 1e-6, 0.0, residual), 8 * x.numel())
    gate_up = normal(sizes.tokens, 2 * sizes.inner, device=device)
    shape = f"{sizes.tokens} × {sizes.inner}"
    yield Work("silu_mul", shape, lambda: silu_mul_triton(gate_up, "silu"), 3 * gate_up.numel())


def _cache(sizes: Sizes, device: str) -> Iterator[Work]:
    heads = (sizes.q_heads, sizes.kv_heads, sizes.kv_heads)
    qkv = normal(sizes.tokens, sum(heads), sizes.head_dim, device=device)
    query, key, value = qkv.split(heads, 1)
    keys, values = (_blocks(sizes, sizes.tokens // BLOCK + 1, device) for _ in range(2))
    slots = torch.randperm(sizes.tokens, device=device).int()
    cache, weight = PagedCache(keys, values, slots), normal(sizes.head_dim, device=device)
    rope = Rope(torch.randn(sizes.tokens, sizes.head_dim, device=device), torch.arange(sizes.tokens, device=device))
    norm, shape = HeadNorm(weight, weight, 1e-6), f"{sizes.tokens} tokens, heads {sizes.q_heads}/{sizes.kv_heads}"
    yield Work(
        "kv_write with norm", shape, lambda: kv_write_triton(query, key, value, cache, rope, norm), 4 * qkv.numel()
    )
    count = len(keys)
    pairs = torch.stack([torch.arange(count), torch.randperm(count)], 1)
    moved = 4 * keys.numel()
    yield Work("block_copy between pools", f"{count} blocks", lambda: block_copy_triton(keys, values, pairs), moved)
    host = torch.empty(keys.shape, dtype=keys.dtype, pin_memory=device == "cuda")
    for where, source, target in (("to", keys, host), ("from", host, keys)):
        copied = partial(block_copy_triton, source, target, pairs)
        yield Work(f"block_copy {where} the host", f"{count} blocks", copied, moved // 2)
        plain = partial(target.copy_, source, non_blocking=True)
        yield Work(f"torch's copy {where} the host", f"{count} blocks", plain, moved // 2)


def _blocks(sizes: Sizes, count: int, device: str) -> torch.Tensor:
    return normal(count, BLOCK, sizes.kv_heads, sizes.head_dim, device=device)


def context(sizes: Sizes, sequences: int, length: int, device: str) -> PagedKV:
    """A cache with so many sequences of one length, whose pages are in random order."""
    blocks = -(-length // BLOCK)
    tables = torch.randperm(sequences * blocks, device=device).int().reshape(sequences, blocks)
    keys, values = (_blocks(sizes, sequences * blocks, device) for _ in range(2))
    return PagedKV(keys, values, tables, torch.full((sequences,), length, dtype=torch.int32, device=device))


def attention_shape(sizes: Sizes, kv: PagedKV, query: torch.Tensor, *, causal: bool = False) -> tuple[str, int, int]:
    """How results name this attention, and its bytes and flops. `causal`: of one sequence with itself."""
    what = f"{sizes.tokens} causal" if causal else f"{sizes.batch} × {sizes.context}"
    pairs = sizes.tokens / 2 if causal else sizes.context
    shape = f"{what}, heads {sizes.q_heads}/{sizes.kv_heads}, head dim {sizes.head_dim}"
    return shape, 4 * kv.keys.numel() + 4 * query.numel(), int(4 * query.numel() * pairs)


def _decode(sizes: Sizes, device: str) -> Iterator[Work]:
    query = normal(sizes.batch, sizes.q_heads, sizes.head_dim, device=device)
    kv = context(sizes, sizes.batch, sizes.context, device)
    shape, moved, flops = attention_shape(sizes, kv, query)
    yield Work("paged_decode", shape, lambda: paged_decode_triton(query, kv, AttentionRule()), moved, flops)
    dense = kv.keys.view(sizes.batch, sizes.context, sizes.kv_heads, sizes.head_dim).transpose(1, 2).contiguous()

    def peer() -> torch.Tensor:
        return scaled_dot_product_attention(query[:, :, None], dense, dense, enable_gqa=True)

    yield Work("torch's attention, contiguous", shape, peer, moved, flops)
    if device == "cpu" or torch.cuda.get_device_capability() >= (8, 9):
        scales = torch.ones(sizes.kv_heads, device=device)
        fp8 = PagedKV(kv.keys.to(FP8), kv.values.to(FP8), kv.tables, kv.contexts, scales, scales)
        moved = 2 * kv.keys.numel() + 4 * query.numel()
        yield Work("paged_decode, fp8", shape, lambda: paged_decode_triton(query, fp8, AttentionRule()), moved, flops)


def _prefill(sizes: Sizes, device: str) -> Iterator[Work]:
    query = normal(sizes.tokens, sizes.q_heads, sizes.head_dim, device=device)
    kv = context(sizes, 1, sizes.tokens, device)
    starts = torch.tensor([0, sizes.tokens], dtype=torch.int32, device=device)
    shape, moved, flops = attention_shape(sizes, kv, query, causal=True)
    yield Work("paged_prefill", shape, lambda: paged_prefill_triton(query, starts, kv, AttentionRule()), moved, flops)
    ours = query.transpose(0, 1)[None]
    dense = kv.keys.flatten(0, 1)[: sizes.tokens].transpose(0, 1)[None]

    def peer() -> torch.Tensor:
        return scaled_dot_product_attention(ours, dense, dense, is_causal=True, enable_gqa=True)

    yield Work("torch's attention, contiguous", shape, peer, moved, flops)


def _sample(sizes: Sizes, device: str) -> Iterator[Work]:
    count = sizes.sampled
    logits = torch.randn(count, sizes.vocabulary, device=device)
    index = torch.arange(count, device=device)
    rows = Rows(index.int(), index)
    for what, top_k, top_p in (("sample", 0, 1.0), ("sample, top-k 50, top-p 0.9", 50, 0.9)):
        draws = Draws(
            torch.ones(count, device=device), torch.zeros(count, device=device),
            torch.full((count,), top_k, dtype=torch.int32, device=device),
            torch.full((count,), top_p, dtype=torch.float64, device=device), index,
        )  # fmt: skip
        shape, moved = f"{count} × {sizes.vocabulary}", 4 * logits.numel()
        yield Work(what, shape, partial(sample_triton, logits, rows, draws, None, None), moved)


def _weight_only(sizes: Sizes, device: str) -> Iterator[Work]:
    inner, outputs = -(-sizes.width // GROUP) * GROUP, 2 * sizes.inner
    weight, groups = normal(inner, outputs, device=device), inner // GROUP
    scales = torch.rand(groups, outputs, device=device, dtype=torch.float16)
    for rows in FEW_ROWS:
        x, shape = normal(rows, inner, device=device), f"{rows} × {inner} × {outputs}"
        around, flops = 2 * (x.numel() + rows * outputs), 2 * x.numel() * outputs
        for bits, product in ((4, w4a16_triton), (8, w8a16_triton)):
            words = torch.randint(-(2**31), 2**31, (inner * bits // 32, outputs), dtype=torch.int32, device=device)
            weights = GroupedWeights(words, scales, torch.full_like(scales, 1 << (bits - 1), dtype=torch.int16))
            moved = around + 4 * words.numel() + 4 * scales.numel()
            yield Work(f"w{bits}a16", shape, partial(product, x, weights), moved, flops)
        moved = around + 2 * weight.numel()
        yield Work("torch's product, bf16", shape, partial(torch.matmul, x, weight), moved, flops)


def _experts(sizes: Sizes, device: str) -> Iterator[Work]:
    experts, hidden, inner = sizes.experts, sizes.expert_hidden, sizes.expert_inner
    weights = ExpertWeights(
        normal(experts, 2 * inner, hidden, device=device), normal(experts, hidden, inner, device=device)
    )
    rule = RoutingRule(sizes.top_k)
    for rows in (1, 32, 256, sizes.tokens):
        x, logits = normal(rows, hidden, device=device), torch.randn(rows, experts, device=device)
        routing, shape = route_triton(logits, rule), f"{rows} rows, top-{sizes.top_k} of {experts}, {hidden} × {inner}"
        yield Work("moe, routing", shape, partial(route_triton, logits, rule), 4 * logits.numel())
        moved, flops = _experts_work(x, weights, routing)
        yield Work("moe", shape, partial(moe_triton, x, weights, routing), moved, flops)
        if device == "cpu" or torch.cuda.get_device_capability()[0] in (9, 10):
            call = partial(moe_grouped, x, weights, routing)
            yield Work("moe, torch's grouped product", shape, call, moved, flops)


def _experts_work(x: torch.Tensor, weights: ExpertWeights, routing: Routing) -> tuple[int, int]:
    """Bytes and flops at least: the weights of the chosen experts once, and the rows."""
    one = weights.gate_up[0].numel() + weights.down[0].numel()
    return 2 * one * len(routing.experts.unique()) + 4 * x.numel(), 2 * one * routing.experts.numel()


GROUPS: Final = (_elementwise, _cache, _decode, _prefill, _sample, _weight_only, _experts)

"""Other projects' kernels on the work of `speed.py`, where they are installed: FlashInfer, Liger and xformers.

A peer that is not installed, or fails, is named and left out: it says nothing about these kernels.
"""

import importlib.util
from collections.abc import Callable, Iterator
from typing import Final

import torch
from bench.ceilings import Ceilings, seconds_of
from bench.report import Result
from bench.speed import SMALL, Sizes, Work, attention_shape, context, normal

WORKSPACE: Final = 128 << 20  # bytes, as FlashInfer's documentation has it

Works = Callable[[Sizes, str], Iterator[Work]]


def measure(device: str, ceilings: Ceilings, *, small: bool) -> Iterator[Result]:
    """One result per peer's kernel; a line for each peer that is left out."""
    sizes = SMALL if small else Sizes()
    torch.manual_seed(0)
    for package, works in PEERS.items():
        if importlib.util.find_spec(package) is None:
            print(f"{package}: not installed")
            continue
        try:
            for work in works(sizes, device):
                seconds = seconds_of(work.call, device)
                fraction = ceilings.floor(work.bytes, work.flops) / seconds
                yield Result(work.what, work.shape, seconds, work.bytes, work.flops, round(fraction, 4))
        except Exception as error:  # noqa: BLE001 - the peer's versions may not fit this machine
            print(f"{package}: left out after {error!r}")


def _flashinfer(sizes: Sizes, device: str) -> Iterator[Work]:
    import flashinfer

    heads = (sizes.q_heads, sizes.kv_heads, sizes.head_dim)
    space = torch.empty(WORKSPACE, dtype=torch.uint8, device=device)
    kv = context(sizes, sizes.batch, sizes.context, device)
    query, pages = normal(sizes.batch, sizes.q_heads, sizes.head_dim, device=device), kv.tables.shape[1]
    block = kv.keys.shape[1]
    ends = torch.arange(0, sizes.batch + 1, dtype=torch.int32, device=device)
    last = torch.full((sizes.batch,), (sizes.context - 1) % block + 1, dtype=torch.int32, device=device)
    decode = flashinfer.BatchDecodeWithPagedKVCacheWrapper(space, "NHD", use_tensor_cores=True)
    decode.plan(ends * pages, kv.tables.flatten(), last, *heads, block, q_data_type=query.dtype)
    shape, moved, flops = attention_shape(sizes, kv, query)
    yield Work("FlashInfer's decode", shape, lambda: decode.run(query, (kv.keys, kv.values)), moved, flops)

    kv = context(sizes, 1, sizes.tokens, device)
    rows = normal(sizes.tokens, sizes.q_heads, sizes.head_dim, device=device)
    starts = torch.tensor([0, sizes.tokens], dtype=torch.int32, device=device)
    ends, last = starts // sizes.tokens * kv.tables.shape[1], last[:1] * 0 + (sizes.tokens - 1) % block + 1
    prefill = flashinfer.BatchPrefillWithPagedKVCacheWrapper(space, "NHD")
    prefill.plan(starts, ends, kv.tables.flatten(), last, *heads, block, causal=True, q_data_type=rows.dtype)
    shape, moved, flops = attention_shape(sizes, kv, rows, causal=True)
    yield Work("FlashInfer's prefill", shape, lambda: prefill.run(rows, (kv.keys, kv.values)), moved, flops)


def _liger(sizes: Sizes, device: str) -> Iterator[Work]:
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction as Norm
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction as Gate

    x, residual = (normal(sizes.tokens, sizes.width, device=device) for _ in range(2))
    weight = normal(sizes.width, device=device)
    shape = f"{sizes.tokens} × {sizes.width}"
    yield Work("Liger's norm with residual", shape, lambda: Norm.apply(x, residual, weight, 1e-6), 8 * x.numel())
    gate, up = (normal(sizes.tokens, sizes.inner, device=device) for _ in range(2))
    shape = f"{sizes.tokens} × {sizes.inner}"
    yield Work("Liger's silu · mul", shape, lambda: Gate.apply(gate, up), 6 * gate.numel())


def _xformers(sizes: Sizes, device: str) -> Iterator[Work]:
    from xformers.ops import fmha
    from xformers.ops.fmha import attn_bias

    kv = context(sizes, sizes.batch, sizes.context, device)
    query, block = normal(sizes.batch, sizes.q_heads, sizes.head_dim, device=device), kv.keys.shape[1]
    bias = attn_bias.PagedBlockDiagonalPaddedKeysMask.from_seqlens(
        q_seqlen=[1] * sizes.batch, kv_seqlen=[sizes.context] * sizes.batch, page_size=block, block_tables=kv.tables
    )
    group = sizes.q_heads // sizes.kv_heads
    grouped = query.view(1, sizes.batch, sizes.kv_heads, group, sizes.head_dim)
    keys, values = (
        each.view(1, -1, sizes.kv_heads, 1, sizes.head_dim).expand(-1, -1, -1, group, -1)
        for each in (kv.keys, kv.values)
    )

    def attend() -> object:
        return fmha.memory_efficient_attention_forward(
            grouped, keys, values, attn_bias=bias, op=fmha.triton_splitk.FwOp
        )

    shape, moved, flops = attention_shape(sizes, kv, query)
    yield Work("xformers' split-K decode", shape, attend, moved, flops)


PEERS: Final[dict[str, Works]] = {"flashinfer": _flashinfer, "liger_kernel": _liger, "xformers": _xformers}

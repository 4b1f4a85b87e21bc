"""Bad arguments of every kernel raise ValueError, which names the argument, what is expected and what was given."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from sluice_kernels import launch
from sluice_kernels.block_copy import block_copy
from sluice_kernels.block_copy import can_use as can_copy
from sluice_kernels.grouped_weights import GroupedWeights, pack
from sluice_kernels.kv_write import HeadNorm, PagedCache, Rope, kv_write
from sluice_kernels.moe import ExpertWeights, Routing, RoutingRule, Shared, moe, route
from sluice_kernels.moe import can_use as can_mix
from sluice_kernels.paged_decode import AttentionRule, PagedKV, paged_decode
from sluice_kernels.paged_prefill import paged_prefill
from sluice_kernels.rms_norm import rms_norm, rms_norm_fp8
from sluice_kernels.sample import Draws, Rows, sample, token_logprobs
from sluice_kernels.silu_mul import silu_mul, silu_mul_fp8
from sluice_kernels.w4a16 import can_use as can_multiply
from sluice_kernels.w4a16 import w4a16
from sluice_kernels.w8a16 import w8a16

X = torch.ones(3, 8)
META = torch.device("meta")
KV = PagedKV(torch.ones(4, 16, 2, 8), torch.ones(4, 16, 2, 8), *(torch.ones(2, 2).int(), torch.ones(2).int()))
QUERY = torch.ones(2, 4, 8)
STARTS = torch.tensor([0, 1, 2], dtype=torch.int32)
CACHE = PagedCache(torch.ones(4, 16, 2, 8), torch.ones(4, 16, 2, 8), torch.tensor([1, -1]))
KEY = torch.ones(2, 2, 8)
ROPE = Rope(torch.ones(10, 8), torch.tensor([0, 1]))
NORM = HeadNorm(torch.ones(8), torch.ones(8), 1e-6)
FP8 = torch.float8_e4m3fn
RULE = AttentionRule()
POOL = torch.ones(4, 3)
PAIRS = torch.tensor([[0, 1], [2, 3]])
LOGITS = torch.ones(2, 8)
ROWS = Rows(torch.zeros(2, dtype=torch.int32), torch.zeros(2, dtype=torch.int64))
DRAWS = Draws(
    *(torch.ones(2, dtype=kind) for kind in (torch.float32, torch.float32, torch.int32, torch.float64, torch.int64))
)

WIDE = torch.ones(2, 256)
GROUPED = GroupedWeights(
    torch.zeros(32, 6, dtype=torch.int32), torch.ones(2, 6), torch.zeros(2, 6, dtype=torch.int16), torch.arange(256)
)
EXPERTS = ExpertWeights(torch.ones(4, 10, 8), torch.ones(4, 8, 5))
ROUTING = Routing(torch.zeros(3, 2, dtype=torch.int32), torch.ones(3, 2))
SHARED = Shared(X, X[:, :1])


def attend(**changes: Any) -> Callable[[], object]:
    """Both kernels' checks are the same function; decode runs it."""
    return lambda: paged_decode(QUERY, replace(KV, **changes), RULE)


def write(**changes: Any) -> Callable[[], object]:
    return lambda: kv_write(QUERY, KEY, KEY, replace(CACHE, **changes))


def multiply(**changes: Any) -> Callable[[], object]:
    """Both products' checks are the same function; int4 runs it."""
    return lambda: w4a16(WIDE, replace(GROUPED, **changes))


def mix(shared: Shared | None = None, **changes: Any) -> Callable[[], object]:
    weights = {name: value for name, value in changes.items() if name in ("gate_up", "down")}
    routing = {name: value for name, value in changes.items() if name not in weights}
    return lambda: moe(X, replace(EXPERTS, **weights), replace(ROUTING, **routing), shared)


CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "norm: shape": (lambda: rms_norm(X[0], X[0], 1e-6), r"x: expected shape \[rows, width\] = \[any, any\], got \[8\]"),
    "norm: weight": (lambda: rms_norm(X, torch.ones(7), 1e-6), r"weight: expected shape .*\[8\], got \[7\]"),
    "norm: dtype": (lambda: rms_norm(X.double(), X[0], 1e-6), "x: expected dtype torch.float32 or .*, got .*float64"),
    "norm: stride": (lambda: rms_norm(X.T, torch.ones(3), 1e-6), "x: expected a contiguous last dimension, got"),
    "norm: device": (lambda: rms_norm(X, X[0].to(META), 1e-6), "weight: expected device cpu, got meta"),
    "norm: residual": (lambda: rms_norm(X, X[0], 1e-6, 0.0, X[:2].clone()), "residual: expected shape"),
    "norm: width": (lambda: rms_norm(torch.ones(1, 16385), torch.ones(16385), 1e-6), "x: rms_norm supports rows of 1"),
    "norm: fp8 width": (lambda: rms_norm_fp8(torch.ones(1, 0), torch.ones(0), 1e-6), "x: rms_norm supports rows of 1"),
    "silu: odd": (lambda: silu_mul(torch.ones(3, 7)), "gate_up: expected an even last dimension, got 7"),
    "silu: activation": (lambda: silu_mul(X, "relu"), "activation: expected silu or gelu_tanh, got relu"),
    "silu: dtype": (lambda: silu_mul_fp8(X.int()), "gate_up: expected dtype"),
    "silu: stride": (lambda: silu_mul(torch.ones(8, 4).T), "gate_up: expected a contiguous last dimension"),
    "attend: query": (lambda: paged_decode(QUERY[0], KV, RULE), r"query: expected shape \[rows, q_heads, head_dim\]"),
    "attend: heads": (lambda: paged_decode(QUERY[:, :3], KV, RULE), "query: expected a multiple of 2 heads, got 3"),
    "attend: stride": (lambda: paged_decode(torch.ones(2, 8, 4).mT, KV, RULE), "query: expected a contiguous last"),
    "attend: keys": (attend(keys=torch.ones(4, 16, 2, 7)), r"kv.keys: expected shape .*8\], got \[4, 16, 2, 7\]"),
    "attend: values": (attend(values=torch.ones(4, 8, 2, 8)), "kv.values: expected shape"),
    "attend: cache dtype": (attend(keys=KV.keys.half(), values=KV.values.half()), "kv.keys: expected dtype"),
    "attend: dtypes": (attend(values=KV.values.half()), "kv.values: expected dtype"),
    "attend: tables dtype": (attend(tables=KV.tables.long()), "kv.tables: expected dtype torch.int32, got torch.int64"),
    "attend: contexts": (attend(contexts=KV.contexts[:1]), r"kv.contexts: expected shape \[sequences\] = \[2\]"),
    "attend: device": (attend(tables=KV.tables.to(META)), "kv.tables: expected device cpu, got meta"),
    "attend: scales": (attend(keys=KV.keys.to(FP8), values=KV.values.to(FP8)), "kv.key_scales: expected float32 scales"),
    "attend: no scales": (attend(key_scales=torch.ones(2)), "kv.key_scales: expected None for a cache of torch.float32"),
    "attend: rows": (lambda: paged_decode(QUERY[:1], KV, RULE), r"kv.tables: expected shape .*\[1, any\], got \[2, 2\]"),
    "attend: window": (lambda: paged_decode(QUERY, KV, AttentionRule(window=0)), "rule.window: expected None or more"),
    "attend: soft cap": (lambda: paged_decode(QUERY, KV, AttentionRule(softcap=-1.0)), "rule.softcap: expected None or"),
    "attend: sinks": (lambda: paged_decode(QUERY, KV, AttentionRule(sinks=torch.ones(3))), "rule.sinks: expected shape"),
    "prefill: starts": (lambda: paged_prefill(QUERY, STARTS[:2], KV, RULE), r"starts: expected shape .*\[3\], got \[2\]"),
    "prefill: dtype": (lambda: paged_prefill(QUERY, STARTS.long(), KV, RULE), "starts: expected dtype torch.int32"),
    "write: key": (lambda: kv_write(QUERY, KEY[:1], KEY, CACHE), "key: expected shape"),
    "write: value": (lambda: kv_write(QUERY, KEY, KEY[:, :1], CACHE), "value: expected shape"),
    "write: dtype": (lambda: kv_write(QUERY, KEY.half(), KEY, CACHE), "key: expected dtype torch.float32"),
    "write: heads": (lambda: kv_write(QUERY[:, :3], KEY, KEY, CACHE), "query: expected a multiple of 2 heads"),
    "write: slots": (write(slots=torch.tensor([1])), r"cache.slots: expected shape \[tokens\] = \[2\]"),
    "write: slots dtype": (write(slots=torch.tensor([1.0, 2.0])), "cache.slots: expected dtype torch.int32 or"),
    "write: cache": (write(keys=torch.ones(4, 16, 3, 8)), "cache.keys: expected shape"),
    "write: scales": (write(value_scales=torch.ones(2)), "cache.value_scales: expected None"),
    "write: table": (lambda: kv_write(QUERY, KEY, KEY, CACHE, replace(ROPE, table=torch.ones(9, 12))), "even rotary_dim"),
    "write: positions": (
        lambda: kv_write(QUERY, KEY, KEY, CACHE, replace(ROPE, positions=torch.tensor([1]))),
        "rope.positions: expected shape",
    ),
    "write: norm": (lambda: kv_write(QUERY, KEY, KEY, CACHE, None, replace(NORM, key=torch.ones(4))), "norm.key: expected"),
    "copy: shape": (lambda: block_copy(POOL, POOL[:, :2].clone(), PAIRS), r"target: expected shape .*\[any, 3\], got"),
    "copy: flat": (lambda: block_copy(POOL[0], POOL[0], PAIRS), "source: expected shape"),
    "copy: dtype": (lambda: block_copy(POOL, POOL.half(), PAIRS), "target: expected dtype torch.float32"),
    "copy: stride": (lambda: block_copy(POOL.T, POOL.T, PAIRS), "source: expected a contiguous tensor"),
    "copy: pairs": (lambda: block_copy(POOL, POOL, PAIRS[0]), r"pairs: expected shape \[n, 2\]"),
    "copy: pairs dtype": (lambda: block_copy(POOL, POOL, PAIRS.int()), "pairs: expected dtype torch.int64"),
    "copy: outside": (lambda: block_copy(POOL, POOL, PAIRS + 3), "pairs: expected blocks from 0 to 3 and to 3, got 3 to"),
    "copy: negative": (lambda: block_copy(POOL, POOL, PAIRS - 1), "pairs: expected blocks from 0 to 3"),
    "copy: targets": (lambda: block_copy(POOL, POOL, torch.tensor([[0, 1], [2, 1]])), "pairs: expected distinct targets"),
    "sample: shape": (lambda: sample(LOGITS[0], ROWS, DRAWS), r"logits: expected shape \[rows, vocabulary\]"),
    "sample: dtype": (lambda: sample(LOGITS.double(), ROWS, DRAWS), "logits: expected dtype"),
    "sample: slots": (lambda: sample(LOGITS, replace(ROWS, slots=ROWS.positions), DRAWS), "rows.slots: expected dtype"),
    "sample: mask": (lambda: sample(LOGITS, replace(ROWS, mask=ROWS.slots[:, None][:1]), DRAWS), "rows.mask: expected sha"),
    "sample: top-p": (lambda: sample(LOGITS, ROWS, replace(DRAWS, top_p=DRAWS.min_p)), "draws.top_p: expected dtype"),
    "sample: seeds": (lambda: sample(LOGITS, ROWS, replace(DRAWS, seeds=DRAWS.seeds[:1])), "draws.seeds: expected shape"),
    "logprobs: count": (lambda: token_logprobs(LOGITS, ROWS.positions, 9), "count: expected 0 to 8, got 9"),
    "logprobs: tokens": (lambda: token_logprobs(LOGITS, ROWS.slots, 1), "tokens: expected dtype torch.int64"),
    "w4a16: shape": (lambda: w4a16(WIDE[0], GROUPED), r"x: expected shape \[rows, inner\] = \[any, any\], got \[256\]"),
    "w4a16: off the group": (lambda: w4a16(WIDE[:, :200], GROUPED), "x: w4a16 supports inner sizes that are multiples of its"),
    "w8a16: off the group": (lambda: w8a16(WIDE[:, :64], GROUPED), "x: w8a16 supports inner .* group of 128, not 64"),
    "w4a16: dtype": (lambda: w4a16(WIDE.double(), GROUPED), "x: w4a16 supports float32, float16 and bfloat16, not .*64"),
    "w4a16: stride": (lambda: w4a16(torch.ones(256, 2).T, GROUPED), "x: expected a contiguous last dimension"),
    "w8a16: words": (lambda: w8a16(WIDE, GROUPED), r"weights.words: expected shape .*\[64, 6\], got \[32, 6\]"),
    "w4a16: words dtype": (multiply(words=GROUPED.words.long()), "weights.words: expected dtype torch.int32"),
    "w4a16: words stride": (multiply(words=GROUPED.words.T.contiguous().T), "weights.words: expected a contiguous tensor"),
    "w4a16: scales": (multiply(scales=GROUPED.scales[:1]), r"weights.scales: expected shape .*\[2, 6\], got \[1, 6\]"),
    "w4a16: zeros": (multiply(zeros=GROUPED.zeros.int()), "weights.zeros: expected dtype torch.int16, got torch.int32"),
    "w4a16: order": (multiply(order=torch.arange(255)), r"weights.order: expected shape \[inner\] = \[256\]"),
    "w4a16: device": (multiply(zeros=GROUPED.zeros.to(META)), "weights.zeros: expected device cpu, got meta"),
    "route: shape": (lambda: route(X[0], RoutingRule(2)), r"logits: expected shape \[rows, experts\]"),
    "route: top-k": (lambda: route(X, RoutingRule(9)), "logits: moe supports 1 to 8 of 8 experts per row, not 9"),
    "route: no choice": (lambda: route(X, RoutingRule(0)), "logits: moe supports 1 to 8 of 8 experts per row, not 0"),
    "route: stride": (lambda: route(X.T, RoutingRule(1)), "logits: expected a contiguous last dimension"),
    "moe: shape": (lambda: moe(X[0], EXPERTS, ROUTING), r"x: expected shape \[rows, hidden\] = \[any, any\], got \[8\]"),
    "moe: down": (mix(down=torch.ones(4, 7, 5)), r"weights.down: expected shape .*\[any, 8, any\], got \[4, 7, 5\]"),
    "moe: gate and up": (mix(gate_up=torch.ones(4, 9, 8)), r"weights.gate_up: expected shape .*\[4, 10, 8\], got \[4, 9, 8"),
    "moe: dtype": (mix(down=EXPERTS.down.half()), "weights.down: expected dtype torch.float32, got torch.float16"),
    "moe: stride": (mix(down=torch.ones(4, 5, 8).mT), "weights.down: expected a contiguous tensor"),
    "moe: experts": (mix(experts=ROUTING.experts.long()), "routing.experts: expected dtype torch.int32, got torch.int64"),
    "moe: rows": (mix(experts=ROUTING.experts[:2]), r"routing.experts: expected shape .*\[3, any\], got \[2, 2\]"),
    "moe: weights": (mix(weights=torch.ones(3, 1)), r"routing.weights: expected shape .*\[3, 2\], got \[3, 1\]"),
    "moe: device": (mix(weights=ROUTING.weights.to(META)), "routing.weights: expected device cpu, got meta"),
    "moe: shared": (mix(replace(SHARED, out=X[:2])), r"shared.out: expected shape .*\[3, 8\], got \[2, 8\]"),
    "moe: shared gate": (mix(replace(SHARED, gate=X)), r"shared.gate: expected shape .*\[3, 1\], got \[3, 8\]"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_bad_argument_is_named(name: str) -> None:
    call, sentence = CALLS[name]
    with pytest.raises(ValueError, match=sentence):
        call()


def test_fp8_on_an_architecture_without_it_is_refused() -> None:
    cache = torch.ones(4, 16, 2, 8, device=META, dtype=FP8)
    scales, bits = torch.ones(2, device=META), torch.ones(2, 2, device=META, dtype=torch.int32)
    kv = PagedKV(cache, cache, bits, bits[0], scales, scales)
    query = torch.ones(2, 4, 8, device=META, dtype=torch.bfloat16)
    with (
        launch.recording(80),
        pytest.raises(ValueError, match="fp8 needs an architecture of sm_89 or newer, this is sm_80"),
    ):
        paged_decode(query, kv, RULE)
    with launch.recording(90) as launches:
        paged_decode(query, kv, RULE)
    assert launches


def test_unpinned_host_memory_is_refused_for_copies() -> None:
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    assert can_copy(cuda, cpu, pinned=True) is None
    assert "pinned host memory" in str(can_copy(cuda, cpu, pinned=False))
    assert "needs a CUDA device" in str(can_copy(cpu, cpu, pinned=True))


def test_the_products_say_what_they_support() -> None:
    assert can_multiply(4096, torch.bfloat16) is None
    assert (
        can_multiply(4095, torch.bfloat16)
        == "w4a16 supports inner sizes that are multiples of its group of 128, not 4095"
    )


def test_the_mixture_of_experts_says_what_it_supports() -> None:
    assert can_mix(128, RoutingRule(8), torch.bfloat16) is None
    assert can_mix(513, RoutingRule(8), torch.bfloat16) == "moe supports 1 to 512 experts, not 513"
    assert str(can_mix(128, RoutingRule(17), torch.bfloat16)).startswith("moe supports 1 to 16 of 128 experts")
    assert str(can_mix(8, RoutingRule(2), torch.int8)).startswith("moe supports float32, float16 and bfloat16")


@pytest.mark.parametrize(("product", "bits"), [(w4a16, 4), (w8a16, 8)])
def test_many_rows_are_multiplied_by_dequantised_weights(product: Any, bits: int) -> None:
    values = torch.arange(256).remainder(1 << bits)[:, None].expand(256, 6)
    weights = replace(
        GROUPED, words=pack(values, bits), scales=torch.full((2, 6), 0.5), order=torch.arange(256).flip(0)
    )
    x = torch.randn(65, 256, generator=torch.Generator().manual_seed(0))
    want = x.double() @ values.flip(0).double() * 0.5
    torch.testing.assert_close(product(x, weights).double(), want, rtol=1e-5, atol=1e-2)
    torch.testing.assert_close(product(x[:2], weights).double(), want[:2], rtol=1e-5, atol=1e-2)
    with launch.recording(90) as launches:
        for rows in (65, 64):
            product(
                x[:1].to(META).expand(rows, 256),
                replace(
                    weights, **{name: getattr(weights, name).to(META) for name in ("words", "scales", "zeros", "order")}
                ),
            )
    assert {one.constants.get("rows") for one in launches} - {None} == {64}

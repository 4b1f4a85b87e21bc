"""The attention of a model is chosen once, with a reason; torch's reads the same pages and gives the kernels' results."""

import logging
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig

from sluice_engine.backend.choose import choose_backend
from sluice_engine.backend.cuda.attention import (
    Heads,
    can_flash,
    choose_attention,
    flash_over_pages,
    flash_over_texts,
    flash_texts,
    torch_prefill,
)
from sluice_engine.backend.cuda.backend import CudaBackend
from sluice_engine.backend.cuda.decoder import FusedDecoder
from sluice_engine.backend.cuda.runner import GraphRunner
from sluice_engine.config import AttentionBackend
from sluice_engine.core.engine import EngineLoop
from sluice_engine.errors import InvalidOption
from sluice_engine.model import attention
from sluice_engine.model.attention import Rule, attend_packed
from sluice_engine.model.loader import load_model
from sluice_engine.model.pooling.packed_batch import PackedBatch, pack_batch
from sluice_kernels.paged import AttentionRule, PagedKV
from sluice_kernels.paged_decode.reference import paged_decode_reference
from sluice_kernels.paged_prefill.reference import paged_prefill_reference
from tests.engine.backend.cuda.simulated_device import FixedMemory
from tests.engine.families import FAMILIES, SMALL, save
from tests.engine.oracle import Oracle, finish, options, submit
from tests.engine.texts import Reference, save_texts_model, texts

CPU = torch.device("cpu")
SUPPORTED, UNSUPPORTED = Heads(128, 4, torch.bfloat16), Heads(288, 1, torch.bfloat16)


def on(folder: Path, asked: AttentionBackend) -> EngineLoop:
    return EngineLoop(
        options(folder, max_num_seqs=8, max_batched_tokens=32),
        backend=CudaBackend(CPU, FixedMemory(), attention=asked),
    )


def test_auto_takes_the_kernels_where_they_support_the_model_and_says_why_not() -> None:
    assert choose_attention("auto", SUPPORTED).name == "sluice"
    chosen = choose_attention("auto", UNSUPPORTED)
    assert (chosen.name, chosen.fixed_shapes) == ("torch", False)
    assert "head_dim of 1 to 256, not 288" in chosen.reason
    assert choose_attention("torch", SUPPORTED).reason == "--attention-backend asks for it"
    with pytest.raises(InvalidOption, match=r"backend sluice: .* not 288\. Use --attention-backend auto or torch"):
        choose_attention("sluice", UNSUPPORTED)


def test_the_cpu_has_one_attention() -> None:
    with pytest.raises(InvalidOption, match=r"--attention-backend torch is for GPUs.*--device cuda"):
        choose_backend("cpu", "torch")


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma2"])  # one group, windows, a soft cap in modules
def test_torchs_attention_gives_transformers_tokens(
    family: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    folder = save(FAMILIES[family](), tmp_path)
    engine = on(folder, "torch")
    lines = [record.getMessage() for record in caplog.records if "attention by" in record.getMessage()]
    assert lines == ["attention by torch: --attention-backend asks for it"]
    prompts = [[5, 6, 7], [9] * 50, [3]]
    for index, prompt in enumerate(prompts):
        submit(engine, str(index), prompt, 6)
    got, oracle = finish(engine), Oracle(folder)
    for index, prompt in enumerate(prompts):
        oracle.expect(prompt, got[str(index)], 6)


def test_only_the_kernels_attention_is_captured_in_graphs(tmp_path: Path) -> None:
    folder = save(LlamaConfig(**SMALL), tmp_path)
    kernels, torchs = on(folder, "auto"), on(folder, "torch")
    assert isinstance(torchs.model.module.forward, FusedDecoder)
    assert isinstance(kernels.runner, GraphRunner) and not isinstance(torchs.runner, GraphRunner)


def flash(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor,
    most_queries: int, most_keys: int, dropout: float, causal: bool, debug: bool, *,
    scale: float, seqused_k: torch.Tensor | None = None,
    window_size_left: int | None = None, window_size_right: int | None = None,
) -> tuple[torch.Tensor]:  # fmt: skip
    """What flash attention documents: ragged queries and keys, causal from the last token that is used."""
    assert (dropout, debug) == (0.0, False)
    assert not causal or window_size_right == (None if window_size_left is None else 0)
    out = torch.empty_like(query)
    group = query.shape[1] // keys.shape[1]
    for index, (first, last) in enumerate(pairwise(starts.tolist())):
        begin = int(ends[index])
        used = int(ends[index + 1]) - begin if seqused_k is None else int(seqused_k[index])
        assert last - first <= most_queries and int(ends[index + 1]) - begin <= most_keys
        key, value = (each[begin : begin + used].repeat_interleave(group, 1) for each in (keys, values))
        scores = torch.einsum("qhd,khd->hqk", query[first:last], key) * scale
        behind = (torch.arange(last - first) + used - (last - first))[:, None] - torch.arange(used)
        hidden = behind < 0 if causal else torch.zeros_like(behind, dtype=torch.bool)
        if window_size_left is not None and window_size_right is not None:
            hidden |= (behind > window_size_left) | (behind < -window_size_right)
        out[first:last] = torch.einsum("hqk,khd->qhd", scores.masked_fill(hidden, -torch.inf).softmax(-1), value)
    return (out,)


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("counts", [[1, 1, 1], [4, 1, 9], [20]])
def test_flash_attention_over_gathered_pages_equals_the_references(counts: list[int], window: int | None) -> None:
    torch.manual_seed(len(counts))
    keys, values = torch.randn(2, 12, 16, 2, 24)
    contexts = torch.tensor([count + 13 * index for index, count in enumerate(counts)], dtype=torch.int32)
    tables = torch.randint(0, 12, (len(counts), 3), dtype=torch.int32)
    starts = torch.tensor([0, *counts]).cumsum(0).to(torch.int32)
    query, kv, rule = (
        torch.randn(sum(counts), 4, 24),
        PagedKV(keys, values, tables, contexts),
        AttentionRule(0.3, window),
    )
    got = flash_over_pages(query, starts, kv, rule, most=len(query), flash=flash)
    torch.testing.assert_close(got, paged_prefill_reference(query, starts, kv, rule))
    if len(query) == len(counts):
        torch.testing.assert_close(got, paged_decode_reference(query, kv, rule))


def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Any:
    return torch.empty(shape, dtype=dtype, device="meta")


def test_torchs_operator_takes_these_arguments_and_reads_no_value() -> None:
    tables, contexts = meta(3, 5, dtype=torch.int32), meta(3, dtype=torch.int32)
    kv = PagedKV(meta(12, 16, 2, 64), meta(12, 16, 2, 64), tables, contexts)
    query, starts = meta(40, 8, 64), meta(4, dtype=torch.int32)
    out = flash_over_pages(query, starts, kv, AttentionRule(window=9), most=40)
    assert (out.shape, out.dtype) == (query.shape, query.dtype)


def test_what_flash_attention_lacks_is_computed_by_the_reference() -> None:
    query, starts = torch.randn(5, 4, 24), torch.tensor([0, 5], dtype=torch.int32)
    keys, values = torch.randn(2, 2, 16, 2, 24)
    kv = PagedKV(keys, values, torch.zeros(1, 1, dtype=torch.int32), torch.tensor([9], dtype=torch.int32))
    rule = AttentionRule(softcap=2.0)
    assert not can_flash(query, rule)
    torch.testing.assert_close(torch_prefill(query, starts, kv, rule), paged_prefill_reference(query, starts, kv, rule))


def packed(lengths: list[int], device: torch.device = CPU) -> PackedBatch:
    return pack_batch([list(range(length)) for length in lengths], [()] * len(lengths), device)


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("lengths", [[1], [1, 4, 4, 9], [20, 20]])
def test_flash_attention_over_whole_texts_equals_the_padded_one(
    lengths: list[int], causal: bool, window: int | None
) -> None:
    torch.manual_seed(len(lengths))
    query, (key, value) = torch.randn(1, 4, sum(lengths), 24), torch.randn(2, 1, 2, sum(lengths), 24)
    given = (query, key, value, packed(lengths), Rule(0.3, window))
    got = flash_over_texts(*given, causal=causal, flash=flash)
    torch.testing.assert_close(got, attend_packed(*given, causal=causal))


def test_torchs_operator_takes_whole_texts_and_reads_no_value() -> None:
    query, pair = meta(1, 8, 30, 64), meta(1, 2, 30, 64)
    out = flash_over_texts(query, pair, pair, packed([9, 21], query.device), Rule(0.1, 7), causal=False)
    assert (out.shape, out.dtype) == ((1, 30, 8, 64), query.dtype)


def test_what_flash_attention_lacks_is_padded_for_whole_texts() -> None:
    query, (key, value) = torch.randn(1, 4, 11, 20), torch.randn(2, 1, 2, 11, 20)
    given = (query, key, value, packed([4, 7]), Rule(0.3))
    assert torch.equal(flash_texts(*given, causal=True), attend_packed(*given, causal=True))


@pytest.mark.parametrize("softcap", [None, 2.0])
def test_masked_attention_of_torch_serves_the_cpu_alone(softcap: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    query, (key, value) = torch.randn(1, 4, 17, 24), torch.randn(2, 1, 2, 17, 24)
    rule, asked = Rule(0.3, softcap=softcap), list[torch.device]()
    want = attend_packed(query, key, value, packed([6, 11]), rule, causal=True)

    def noted(tensor: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
        asked.append(tensor.device)
        return torch.nn.functional.scaled_dot_product_attention(tensor, *rest, **named)

    monkeypatch.setattr(attention, "scaled_dot_product_attention", noted)
    elsewhere = torch.device("meta")
    placed = (query.to(elsewhere), key.to(elsewhere), value.to(elsewhere), packed([6, 11], elsewhere))
    out = attend_packed(*placed, rule, causal=True)
    assert (out.shape, asked) == (want.shape, [])
    torch.testing.assert_close(attend_packed(query, key, value, packed([6, 11]), rule, causal=True), want)
    assert asked == [CPU] * (0 if softcap else 2)


def test_explicit_attention_equals_the_one_of_torch() -> None:
    torch.manual_seed(2)
    query, (keys, values) = torch.randn(2, 4, 5, 24), torch.randn(2, 2, 2, 9, 24)
    mask = torch.zeros(2, 1, 5, 9).masked_fill(torch.rand(2, 1, 5, 9) < 0.3, -torch.inf)
    want = attention._attend(query, keys, values, mask, Rule(0.3))
    got = attention._attend_explicitly(query, keys, values, mask, Rule(0.3))
    torch.testing.assert_close(got, want)


def test_an_encoder_on_the_device_attends_by_flash_attention(tmp_path: Path) -> None:
    model = load_model(options(save_texts_model("bert", tmp_path)), CudaBackend(CPU, FixedMemory()))
    assert model.pooled is not None
    chosen = [
        getattr(each, attention._BACKEND)
        for each in model.pooled.encoder.modules()
        if "SelfAttention" in type(each).__name__
    ]
    assert {each.texts for each in chosen} == {flash_texts}
    mixed = sorted(texts([3, 30, 50]), key=len)
    vectors = model.pooled.run(pack_batch(mixed, [()] * 3, CPU))
    want = Reference("bert", tmp_path).rows(mixed, model.pooled.pooling, normalize=True)
    torch.testing.assert_close(vectors, want, rtol=1e-4, atol=1e-5)

"""The compiled decoder gives transformers' logits, at each level of instructions, or leaves the model to torch."""

import gc
import logging
import math
import weakref
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen3Config

from sluice_engine.backend import probe
from sluice_engine.backend.batch_builder import BatchBuilder
from sluice_engine.backend.cpu import acceptance, native
from sluice_engine.backend.cpu.decoder import NativeDecoder, Output
from sluice_engine.backend.cpu.native import NativeAttention
from sluice_engine.config import Quantization
from sluice_engine.core.engine import EngineLoop
from sluice_engine.model import attention, loader
from sluice_engine.model.introspection import Structure, observe
from sluice_engine.model.kv_cache import KVCache
from sluice_engine.scheduler import Row
from tests.engine.backend.compiled import always
from tests.engine.families import FAMILIES, SMALL, logits_of, save
from tests.engine.oracle import options

CPU = torch.device("cpu")
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 0.1}  # relative to the largest logit
BLOCK = 5


@dataclass(frozen=True)
class Case:
    """A model's sizes, and rows (tokens computed before, tokens of this step)."""

    rows: tuple[tuple[int, int], ...]
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    dim: int
    vocab: int
    bias: bool
    head_norms: bool
    tied: bool
    dtype: torch.dtype

    def model(self) -> torch.nn.Module:
        """Random, seeded, with norms and biases that are not ones and zeros."""
        kind = Qwen3Config if self.head_norms else LlamaConfig
        config = kind(
            vocab_size=self.vocab,
            hidden_size=self.hidden,
            intermediate_size=self.inner,
            num_hidden_layers=2,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.dim,
            max_position_embeddings=256,
            attention_bias=self.bias,
            tie_word_embeddings=self.tied,
            initializer_range=0.2,
        )
        torch.manual_seed(3)
        model = AutoModelForCausalLM.from_config(config, dtype=self.dtype, attn_implementation="eager").eval()
        for name, weight in model.named_parameters():
            weight.requires_grad_(False)
            if weight.dim() == 1:
                torch.nn.init.normal_(weight, mean=0.0 if "bias" in name else 0.5, std=0.2)
        return model


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kv_heads = draw(st.sampled_from([1, 2, 3]))
    heads = kv_heads * draw(st.sampled_from([1, 2, 5]))
    row = st.tuples(st.integers(0, 40), st.one_of(st.just(1), st.integers(1, 40)))
    return Case(
        rows=tuple(draw(st.lists(row, min_size=1, max_size=4))),
        hidden=16 * heads * draw(st.integers(1, 2)),
        inner=draw(st.sampled_from([16, 80, 144])),
        heads=heads,
        kv_heads=kv_heads,
        dim=draw(st.sampled_from([16, 32, 48])),
        vocab=draw(st.sampled_from([67, 128, 131])),
        bias=draw(st.booleans()),
        head_norms=draw(st.booleans()),
        tied=draw(st.booleans()),
        dtype=draw(st.sampled_from([torch.float32, torch.bfloat16])),
    )


def text(row: int, count: int, vocab: int) -> list[int]:
    """A row's tokens."""
    return [(7 * row + 3 * i + i * i) % vocab for i in range(count)]


def plain_logits(case: Case) -> torch.Tensor:
    """transformers' own logits after each row's last token, [rows, vocab]."""
    model = case.model()
    texts = [text(index, before + new, case.vocab) for index, (before, new) in enumerate(case.rows)]
    with torch.inference_mode():
        return torch.stack([model(torch.tensor([tokens])).logits[0, -1].float() for tokens in texts])


def assert_largest(output: Output) -> None:
    """What the library found largest is what numpy finds in the logits; NaN where a row has NaN."""
    table, (best, highest) = output.logits[0].numpy(), output.largest
    strange = np.isnan(table).any(axis=1)
    assert np.array_equal(np.isnan(highest), strange)
    assert np.array_equal(best[~strange], table[~strange].argmax(axis=1))
    assert np.array_equal(highest[~strange], table[~strange].max(axis=1))


def paged_logits(case: Case, kernel: NativeAttention, quantization: Quantization = "none") -> torch.Tensor | None:
    """The same through the compiled decoder, what came before as chunks of an earlier step; None where it refuses."""
    model = case.model()
    attention.register()
    model.set_attn_implementation(attention.NAME)
    structure = observe(model, CPU)
    shape = structure.kv_shape(case.dtype)
    if acceptance.compile_forward(model, structure, shape, kernel, quantization) is not None:
        return None
    assert isinstance(model.forward, NativeDecoder)
    blocks = -(-128 // BLOCK)
    kept = replace(shape, dtype=torch.int8) if quantization == "int8" else shape
    cache = KVCache(kept, blocks * len(case.rows), BLOCK, CPU)
    builder = BatchBuilder(
        max_num_seqs=len(case.rows),
        max_model_length=128,
        block_size=BLOCK,
        null_block=cache.null_block,
        device=CPU,
    )
    order = torch.randperm(blocks * len(case.rows), generator=torch.Generator().manual_seed(1)).tolist()
    logits: dict[str, torch.Tensor] = {}
    for later in (False, True):
        rows = []
        for index, (before, new) in enumerate(case.rows):
            tokens = tuple(text(index, before + new, case.vocab))
            start, end = (before, before + new) if later else (0, before)
            if end > start:
                own = tuple(order[index * blocks : (index + 1) * blocks])
                rows.append(Row(str(index), index, start, tokens[start:end], True, 0, own))
        if not rows:
            continue
        builder.install(rows)
        prepared = builder.batch(builder.gather(rows))
        batch = prepared.batch
        with torch.inference_mode():
            output = model(
                input_ids=batch.input_ids,
                position_ids=batch.position_ids,
                use_cache=False,
                logits_to_keep=batch.logits_index.repeat(9),  # more than there are tokens: samples share a row
                sluice_batch=batch,
                sluice_cache=cache,
            )
        assert_largest(output)
        names = prepared.logits_rows.request_ids
        logits = {name: got.clone() for name, got in zip(names, output.logits[0, -len(names) :], strict=True)}
    return torch.stack([logits[str(index)] for index in range(len(case.rows))])


@settings(max_examples=25, deadline=None)
@given(case=cases())
def test_logits_equal_transformers_at_every_level(library: Path, level: int, case: Case) -> None:
    want, got = plain_logits(case), paged_logits(case, NativeAttention(1, library, level, always))
    pairs = level >= native.BF16_LEVEL  # products of bfloat16 need its instructions
    assert (got is not None) == (case.dtype == torch.float32 or pairs)
    if got is not None:
        limit = TOLERANCE[case.dtype] * float(want.abs().max())
        torch.testing.assert_close(got, want, rtol=0, atol=limit)


MANY = Case(
    rows=tuple((index % 9, 1) for index in range(70)),
    hidden=64,
    inner=96,
    heads=4,
    kv_heads=2,
    dim=32,
    vocab=131,
    bias=False,
    head_norms=False,
    tied=False,
    dtype=torch.float32,
)
LONG = replace(MANY, rows=((0, 120), (3, 110), (60, 1)))
# The last layer has nine rows, which each of eight threads normalises for itself: more than there are tokens.
FEW = replace(MANY, rows=((0, 17),), hidden=512, inner=16, heads=1, kv_heads=1, dim=16)

# The last thread sits out the first layer where there are at most sixteen tokens.
JOINED = replace(MANY, rows=((9, 1), (3, 2), (60, 1), (20, 1)))


@pytest.mark.parametrize(
    "case", [MANY, LONG, FEW, JOINED], ids=["many rows", "long chunks", "few wanted rows", "few tokens"]
)
def test_any_number_of_threads_gives_the_same(library: Path, case: Case) -> None:
    want = plain_logits(case)
    for threads in (1, 2, 3, 8):
        got = paged_logits(case, NativeAttention(threads, library))
        assert got is not None
        torch.testing.assert_close(got, want, rtol=0, atol=1e-5 * float(want.abs().max()))


def test_a_nan_token_affects_its_own_row_only(library: Path, level: int) -> None:
    poisoned = text(1, 10, 131)[-1]

    class Poisoned(Case):
        def model(self) -> torch.nn.Module:
            model = super().model()
            model.get_input_embeddings().weight[poisoned] = math.nan
            return model

    rows = ((4, 6), (4, 6), (9, 1))
    assert poisoned not in text(0, 10, 131) + text(2, 10, 131) + list(range(probe.IDS))
    case = Poisoned(**{**vars(MANY), "rows": rows})
    got = paged_logits(case, NativeAttention(1, library, level, always))
    assert got is not None
    assert got.isnan().any(dim=-1).tolist() == [False, True, False]
    halved = paged_logits(replace(case, dtype=torch.bfloat16), NativeAttention(1, library, level, always))
    assert (halved is not None) == (level >= native.BF16_LEVEL)
    if halved is not None:
        assert halved.isnan().any(dim=-1).tolist() == [False, True, False]


def test_a_llama_is_run_by_the_compiled_decoder_and_no_weight_is_held_twice(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native, "LIBRARY", library)
    plain: list[weakref.ref[torch.Tensor]] = []

    def note(module: torch.nn.Module, device: torch.device) -> Structure:
        plain.extend(weakref.ref(each.weight) for each in module.modules() if type(each) is torch.nn.Linear)
        return observe(module, device)

    monkeypatch.setattr(loader, "observe", note)
    with caplog.at_level(logging.INFO):
        engine = EngineLoop(options(save(LlamaConfig(**SMALL), tmp_path)))
    gc.collect()
    assert isinstance(engine.model.module.forward, NativeDecoder)
    assert "the model's layers are run by the compiled decoder" in caplog.text
    assert len(plain) == 3 * 7 + 1
    assert [weight() for weight in plain] == [None] * len(plain)


def test_a_model_with_another_structure_is_run_by_torch(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native, "LIBRARY", library)
    for family in ("gemma2", "phi3", "mixtral"):
        with caplog.at_level(logging.INFO):
            engine = EngineLoop(options(save(FAMILIES[family](), tmp_path / family)))
        assert not isinstance(engine.model.module.forward, NativeDecoder)
    assert caplog.text.count("the model's layers are run by torch") == 3


def test_sizes_that_the_decoder_does_not_support_are_computed_by_torch(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native, "LIBRARY", library)
    with caplog.at_level(logging.INFO):
        engine = EngineLoop(options(save(LlamaConfig(**SMALL | {"intermediate_size": 100}), tmp_path)))
    assert not isinstance(engine.model.module.forward, NativeDecoder)
    assert "does not have sizes or instructions (hidden 64, inner 100" in caplog.text


def test_a_model_whose_logits_differ_is_loaded_again_and_run_by_torch(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(native, "LIBRARY", library)
    folder = save(LlamaConfig(**SMALL, mlp_bias=True), tmp_path)
    texts = [[(3 * i + j * j) % 126 + 2 for j in range(2 + 9 * i)] for i in range(3)]
    want = logits_of(EngineLoop(options(folder)), texts)
    monkeypatch.setattr(acceptance, "CLOSE", {torch.float32: -1.0})
    engine = EngineLoop(options(folder))
    assert not isinstance(engine.model.module.forward, NativeDecoder)
    assert "gives other logits than this model" in caplog.text
    for got, expected in zip(logits_of(engine, texts), want, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)

"""Int8 weights: the compiled product and decoder equal the formula, and what cannot be quantised is refused."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, LlamaConfig

from sluice_engine.backend.choose import choose_backend
from sluice_engine.backend.cpu import native
from sluice_engine.backend.cpu.backend import CpuBackend
from sluice_engine.backend.cpu.decoder import NativeDecoder
from sluice_engine.backend.cpu.native import NativeAttention
from sluice_engine.config import Quantization
from sluice_engine.core.engine import EngineLoop
from sluice_engine.errors import InvalidOption
from sluice_engine.model.loader import load_model
from tests.engine.backend.compiled import always, compiled_product
from tests.engine.backend.int8_reference import (
    OUTLIERS,
    as_int8,
    int8_product,
    quantised_rows,
    quantised_weight,
)
from tests.engine.backend.test_decoder import MANY, Case, cases, paged_logits, text
from tests.engine.families import FAMILIES, SMALL, save
from tests.engine.oracle import finish, options, submit

ROUNDED = {torch.float32: 1e-6, torch.bfloat16: 2**-8}  # relative to the largest output
FLIPS = {torch.float32: 0.02, torch.bfloat16: 0.1}  # a sum at an edge between two integers may round to the other


@st.composite
def products(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Rows, weight and bias of odd sizes and of any magnitude."""
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16]))
    count, inner, outer = draw(st.integers(0, 65)), draw(st.integers(1, 200)), draw(st.integers(1, 140))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    rows = torch.randn(count, inner, generator=generator) * draw(st.sampled_from([1e-30, 1.0, 1e30]))
    if count and draw(st.booleans()):  # one outlier, which all other values are small beside
        rows[draw(st.integers(0, count - 1)), draw(st.integers(0, inner - 1))] *= draw(st.sampled_from([-1e4, 1e4]))
    if count and draw(st.booleans()):
        rows[draw(st.integers(0, count - 1))] = draw(st.sampled_from([0.0, 3.0, -3.0, 1e-40]))
    weight = torch.randn(outer, inner, generator=generator)
    bias = torch.randn(outer, generator=generator).to(dtype) if draw(st.booleans()) else None
    return rows.to(dtype), weight.to(dtype), bias


@settings(max_examples=60, deadline=None)
@given(product=products())
def test_a_product_equals_the_formula_at_every_level(
    library: Path, level: int, product: tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
) -> None:
    rows, weight, bias = product
    got = compiled_product(NativeAttention(1, library).library, level, rows, weight, bias).float()
    want = int8_product(rows, weight, bias)
    step = want.abs().amax(dim=1, keepdim=True) if rows.numel() else want
    assert bool(((got - want).abs() <= ROUNDED[rows.dtype] * step + _flips(rows, weight)).all())


def _flips(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """What the values at an edge between two integers may change, and one at the end of the range: each a step of its row
    times the largest weight. Values of bfloat16 are so coarse that a row may have several.
    """
    step = quantised_rows(rows)[1]
    scaled = torch.where(step > 0, rows.float() / step, 0)
    edges = ((scaled - scaled.floor() - 0.5).abs() < 1e-4 + 1e-6 * scaled.abs()).sum(dim=-1, keepdim=True)
    return 1.01 * (edges + 1) * step * weight.float().abs().max()


@pytest.mark.parametrize("inner", [3, 64, 32768])
def test_saturated_rows_and_weights_overflow_nothing(library: Path, level: int, inner: int) -> None:
    rows = torch.stack([torch.full((inner,), 5.0), torch.full((inner,), -5.0)])
    rows[:, 0] = torch.tensor([-5.0, 5.0])
    weight = torch.full((3, inner), 0.5)
    weight[1] = -0.5
    got = compiled_product(NativeAttention(1, library).library, level, rows, weight, None)
    torch.testing.assert_close(got, int8_product(rows, weight), rtol=1e-5, atol=0)
    torch.testing.assert_close(got, rows @ weight.T, rtol=0.02, atol=0)


@pytest.mark.parametrize("first", [3, 300 - OUTLIERS])
def test_a_few_outliers_do_not_make_the_other_values_coarse(library: Path, level: int, first: int) -> None:
    plain, weight = torch.randn(5, 300), torch.randn(40, 300)
    rows = plain.clone()
    rows[:, first : first + OUTLIERS] = torch.tensor([100.0, -200.0, 300.0, 400.0, -500.0, 600.0])
    kernel = NativeAttention(1, library).library
    errors = [
        (compiled_product(kernel, level, each, quantised, None) - each @ quantised.T).abs().max()
        for each in (plain, rows)
        for quantised in [_exact(weight)]
    ]
    assert errors[1] < 1.5 * errors[0]


def _exact(weight: torch.Tensor) -> torch.Tensor:
    """A weight that 8 bits hold exactly, so that only the rows are rounded."""
    integers, scales = quantised_weight(weight)
    integers[:, 0] = 127
    return integers * scales.log2().ceil().exp2()


@pytest.mark.parametrize("strange", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 16, 69])
def test_a_value_that_is_not_finite_stays_in_its_row(library: Path, level: int, strange: float, place: int) -> None:
    rows, weight = torch.randn(9, 70), torch.randn(33, 70)
    rows[4, place] = strange
    got = compiled_product(NativeAttention(1, library).library, level, rows, weight, None)
    assert got.isnan().all(dim=1).tolist() == [row == 4 for row in range(9)]
    others = [row for row in range(9) if row != 4]
    torch.testing.assert_close(got[others], int8_product(rows[others], weight), rtol=0, atol=1e-4)


def test_a_row_does_not_depend_on_the_other_rows(library: Path, level: int) -> None:
    rows, weight = torch.randn(64, 200), torch.randn(90, 200)
    whole = NativeAttention(1, library).library
    together = compiled_product(whole, level, rows, weight, None)
    alone = torch.cat([compiled_product(whole, level, row[None], weight, None) for row in rows])
    assert torch.equal(together, alone)


def reference_logits(case: Case) -> torch.Tensor:
    """transformers' logits after each row's last token, with int8 products."""
    model = as_int8(case.model())
    texts = [text(index, before + new, case.vocab) for index, (before, new) in enumerate(case.rows)]
    with torch.inference_mode():
        return torch.stack([model(torch.tensor([tokens])).logits[0, -1].float() for tokens in texts])


@settings(max_examples=25, deadline=None)
@given(case=cases())
def test_the_decoder_equals_the_formula_at_every_level(library: Path, level: int, case: Case) -> None:
    got = paged_logits(case, NativeAttention(1, library, level, always), "int8")
    pairs = level >= native.BF16_LEVEL  # attention in bfloat16 needs its instructions
    assert (got is not None) == (case.dtype == torch.float32 or pairs)
    if got is not None:
        want = reference_logits(case)
        torch.testing.assert_close(got, want, rtol=0, atol=FLIPS[case.dtype] * float(want.abs().max()))


WIDE = replace(MANY, hidden=384, heads=6, kv_heads=2, dim=64, rows=((0, 1), (39, 1), (70, 1), (9, 3), (90, 1), (0, 40)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [WIDE.rows, tuple(row for row in WIDE.rows if row[1] == 1)])
def test_the_decoder_equals_the_formula_with_heads_of_64(
    library: Path, level: int, rows: tuple[tuple[int, int], ...], dtype: torch.dtype
) -> None:
    case = replace(WIDE, rows=rows, dtype=dtype)
    got, want = paged_logits(case, NativeAttention(2, library, level, always), "int8"), reference_logits(case)
    assert (got is not None) == (dtype == torch.float32 or level >= native.BF16_LEVEL)
    if got is not None:
        torch.testing.assert_close(got, want, rtol=0, atol=FLIPS[dtype] * float(want.abs().max()))


def test_any_number_of_threads_gives_the_same(library: Path) -> None:
    want = paged_logits(MANY, NativeAttention(1, library), "int8")
    assert want is not None
    for threads in (2, 3, 8):
        got = paged_logits(MANY, NativeAttention(threads, library), "int8")
        assert got is not None and torch.equal(got, want)


def test_an_engine_takes_the_best_token_of_the_formula(
    library: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "LIBRARY", library)
    engine = EngineLoop(options(tiny_llama, quantization="int8", max_batched_tokens=32))
    assert isinstance(engine.model.module.forward, NativeDecoder)
    prompts = {str(i): [3 + (5 * i + j * j) % 90 for j in range(1 + 9 * i)] for i in range(4)}
    for name, prompt in prompts.items():
        submit(engine, name, prompt, max_tokens=24)
    tokens = finish(engine)
    reference = as_int8(AutoModelForCausalLM.from_pretrained(tiny_llama, dtype=torch.float32).eval())
    for name, prompt in prompts.items():
        with torch.inference_mode():
            logits = reference(torch.tensor([prompt + tokens[name]])).logits[0, len(prompt) - 1 : -1]
        taken = logits.gather(1, torch.tensor(tokens[name])[:, None]).squeeze(1)
        assert len(taken) and bool((logits.amax(1) - taken <= 0.02 * logits.abs().amax(1)).all())


def test_int8_weights_take_a_quarter_of_the_memory_of_float32(library: Path) -> None:
    kernel = NativeAttention(1, library)
    sizes = [held_bytes(replace(MANY, hidden=256, inner=1024, vocab=4096), kernel, name) for name in ("none", "int8")]
    assert sizes[1] < 0.27 * sizes[0]


def held_bytes(case: Case, kernel: NativeAttention, quantization: Quantization) -> int:
    """Bytes of the packed weights of a model."""
    used: list[int] = []
    packed = NativeDecoder._memory

    def counted(decoder: NativeDecoder, size: int) -> int:
        used.append(size)
        return packed(decoder, size)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(NativeDecoder, "_memory", counted)
        assert paged_logits(case, kernel, quantization) is not None
    return sum(used)


def test_a_model_that_the_compiled_decoder_does_not_run_is_refused(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "LIBRARY", library)
    folder = save(FAMILIES["gemma2"](), tmp_path)
    with pytest.raises(
        InvalidOption, match=r"int8 .* does not run this model: .* no layers of this kind\. Leave the op"
    ):
        load_model(options(folder, quantization="int8"), CpuBackend("int8"))
    monkeypatch.setattr(native, "LIBRARY", tmp_path / "absent")
    folder = save(LlamaConfig(**SMALL), tmp_path / "llama")
    with pytest.raises(InvalidOption, match=r"the library of compiled kernels is not there\. Leave the option out"):
        load_model(options(folder, quantization="int8"), CpuBackend("int8"))


def test_a_gpu_and_several_ranks_are_refused(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidOption, match=r"--quantization int8 is for .* one CPU, and several ranks share this one"):
        load_model(options(tiny_llama, quantization="int8", tensor_parallel=2), CpuBackend("int8"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(InvalidOption, match=r"--quantization int8 is for the CPU.*GPTQ and AWQ.*or use --device cpu"):
        choose_backend("auto", quantization="int8")

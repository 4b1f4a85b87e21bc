"""Paged attention, by torch and by the compiled kernel at each level of instructions, equals dense attention."""

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from native.build import compile_library
from transformers import AutoModelForCausalLM

from sluice_engine.backend.cpu import native
from sluice_engine.backend.cpu.native import NativeAttention
from sluice_engine.backend.cuda.attention import Heads, choose_attention
from sluice_engine.backend.cuda.modules import paged_attention
from sluice_engine.core.engine import EngineLoop
from sluice_engine.model.attention import PagedAttention
from tests.engine.backend.compiled import always
from tests.engine.families import FAMILIES, logits_of, save
from tests.engine.model.attention_step import LONG, PLAIN, Case, Setting, cases
from tests.engine.oracle import Oracle, finish, options, submit

TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}


Backend = Callable[[int], PagedAttention]  # of so many threads


def chosen(query: torch.Tensor, key_cache: torch.Tensor) -> PagedAttention:
    """What a GPU's `--attention-backend auto` chooses for these shapes."""
    heads = Heads(query.shape[2], query.shape[1] // key_cache.shape[2], query.dtype)
    return paged_attention(choose_attention("auto", heads))


def chosen_decode(query: torch.Tensor, keys: torch.Tensor, *rest: Any) -> torch.Tensor:
    return chosen(query, keys).decode(query, keys, *rest)


def chosen_chunks(query: torch.Tensor, keys: torch.Tensor, *rest: Any) -> torch.Tensor:
    return chosen(query, keys).chunks(query, keys, *rest)


@pytest.fixture(
    scope="session", params=["torch", "the accelerator's attention by its references", *native.LEVELS.values()]
)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Attention by torch, by the accelerator's path with its reference kernels, and compiled, at each level of instructions."""
    if request.param == "torch":
        return lambda _: PagedAttention()
    if request.param not in native.LEVELS.values():
        return lambda _: PagedAttention(chosen_decode, chunks=chosen_chunks)
    library: Path = request.getfixturevalue("library")
    level = next(level for level, words in native.LEVELS.items() if words == request.param)
    if level > request.getfixturevalue("best_level"):
        pytest.skip(f"this processor has no {request.param}")
    return lambda threads: PagedAttention(native=NativeAttention(threads, library, level, always))


@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_every_backend_equals_dense_attention(backend: Backend, case: Case) -> None:
    want = Setting(case).dense()
    fresh = Setting(case)
    got = fresh.attend(backend(1))
    assert got.dtype == case.dtype
    limit = TOLERANCE[case.dtype]
    torch.testing.assert_close(got.double(), want, rtol=limit, atol=limit)
    places = fresh.batch.slot_mapping
    for pool, news in zip(fresh.cache.layers[0], (fresh.key, fresh.value), strict=True):
        assert torch.equal(pool.view(-1, case.kv_heads, case.dim)[places], news)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [None, 40, 64, 100])
def test_windows_over_long_contexts_hide_what_is_older(
    backend: Backend, window: int | None, dtype: torch.dtype
) -> None:
    case = replace(LONG, window=window, dtype=dtype)
    want, limit = Setting(case).dense(), TOLERANCE[dtype]
    torch.testing.assert_close(Setting(case).attend(backend(1)).double(), want, rtol=limit, atol=limit)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("where", ["query", "key", "value"])
def test_a_nan_row_stays_nan_and_affects_no_other(backend: Backend, where: str, dtype: torch.dtype) -> None:
    setting = Setting(replace(PLAIN, dtype=dtype))
    getattr(setting, where)[1].fill_(math.nan)  # the second row's only token
    got = setting.attend(backend(1)).isnan().flatten(1)
    assert got[1].all() and not got[torch.arange(len(got)) != 1].any()


def test_threads_share_the_tiles_and_change_nothing(backend: Backend) -> None:
    want = Setting(PLAIN).dense()
    for threads in (2, 3, 8):
        attention = backend(threads)
        for _ in range(20):
            torch.testing.assert_close(Setting(PLAIN).attend(attention).double(), want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("heads", "dim", "dtype"), [(8, 24, torch.float32), (130, 16, torch.float32), (8, 16, torch.half)]
)
def test_sizes_that_the_kernel_does_not_support_are_computed_by_torch(
    backend: Backend, heads: int, dim: int, dtype: torch.dtype
) -> None:
    case = Case(PLAIN.rows, heads, 2, dim, 16, None, None, dtype, 1)
    got = Setting(case).attend(backend(1)).double()
    torch.testing.assert_close(got, Setting(case).dense(), rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_families_have_the_logits_of_transformers_through_the_kernel(
    library: Path, family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "LIBRARY", library)
    folder = save(FAMILIES[family](), tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    texts = [[(3 * i + j * j) % 126 + 2 for j in range(2 + 19 * i)] for i in range(5)]
    engine = EngineLoop(options(folder, max_batched_tokens=19))
    for text, got in zip(texts, logits_of(engine, texts), strict=True):
        with torch.inference_mode():
            want = plain(torch.tensor([text])).logits[0, -1]
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_greedy_text_through_the_kernel_equals_generate(
    library: Path, tiny_llama: Path, oracle: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "LIBRARY", library)
    engine = EngineLoop(options(tiny_llama, max_batched_tokens=32))
    prompts = [[(5 * i + j * j) % 126 + 2 for j in range(3 + 17 * i)] for i in range(8)]
    for index, prompt in enumerate(prompts):
        submit(engine, str(index), prompt, 20)
    texts = finish(engine)
    for index, prompt in enumerate(prompts):
        oracle.expect(prompt, texts[str(index)], 20)


def test_without_the_library_torch_computes_attention_and_the_log_names_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert native.find(1, tmp_path / "absent.so") is None
        (tmp_path / "damaged.so").write_bytes(b"no library")
        assert native.find(1, tmp_path / "damaged.so") is None
    assert "the library of compiled kernels is not there; install a C compiler" in caplog.text
    assert "damaged.so cannot be used" in caplog.text


def test_the_library_that_was_compiled_is_found_and_its_instructions_named(
    library: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        found = native.find(1, library)
    assert found is not None and native.LEVELS[found.level] in caplog.text


def test_a_missing_or_failing_compiler_is_reported_and_is_no_error(tmp_path: Path) -> None:
    target = tmp_path / "out" / "libsluice_cpu.so"
    assert compile_library(target, []) == "there is no C compiler"
    target.parent.mkdir()
    target.write_bytes(b"of another day")
    problem = compile_library(target, ["false", str(tmp_path / "no-such-compiler")])
    assert problem is not None
    assert problem.startswith("false failed: it said nothing; ")
    assert "no-such-compiler did not run" in problem
    assert not target.exists()

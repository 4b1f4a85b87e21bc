"""Paged attention, by torch and by the compiled kernel at each level of instructions, equals dense attention."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from native.build import compile_library
from transformers import AutoModelForCausalLM

from sluice_engine.backend.cpu import native
from sluice_engine.backend.cpu.native import NativeAttention
from sluice_engine.backend.cuda.attention import Heads, choose_attention
from sluice_engine.backend.cuda.modules import paged_attention
from sluice_engine.core.engine import EngineLoop
from sluice_engine.model.attention import PagedAttention
from sluice_engine.model.batch import Batch, RowGroup
from sluice_engine.model.int8_entries import entries_of, fill, from_entries, to_entries
from sluice_engine.model.kv_cache import KVCache, KVShape
from tests.engine.backend.compiled import always
from tests.engine.families import FAMILIES, logits_of, save
from tests.engine.oracle import Oracle, finish, options, submit

CPU = torch.device("cpu")
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}
WIDENED = {torch.float32: 2e-5, torch.bfloat16: 4e-2}  # chunks of prompts round 8-bit entries to bfloat16


@dataclass(frozen=True)
class Case:
    """Rows (tokens cached before, new tokens) and a shape."""

    rows: tuple[tuple[int, int], ...]
    heads: int
    kv_heads: int
    dim: int
    block_size: int
    window: int | None
    softcap: float | None
    dtype: torch.dtype
    seed: int
    int8: bool = False  # the cache: entries of 8-bit integers


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kv_heads = draw(st.sampled_from([1, 2, 3]))
    row = st.tuples(st.integers(0, 70), st.one_of(st.just(1), st.integers(1, 40)))
    return Case(
        rows=tuple(draw(st.lists(row, min_size=1, max_size=5))),
        heads=kv_heads * draw(st.sampled_from([1, 2, 4, 7])),
        kv_heads=kv_heads,
        dim=draw(st.sampled_from([16, 48, 64, 128])),
        block_size=draw(st.sampled_from([1, 5, 16, 32])),
        window=draw(st.one_of(st.none(), st.integers(1, 50))),
        softcap=draw(st.one_of(st.none(), st.sampled_from([0.5, 30.0]))),
        dtype=draw(st.sampled_from([torch.float32, torch.bfloat16])),
        seed=draw(st.integers(0, 1 << 20)),
    )


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


class Setting:
    """A case's tensors: new queries, keys and values; a cache with what came before, in scattered blocks."""

    def __init__(self, case: Case) -> None:
        self.case = case
        dice = torch.Generator().manual_seed(case.seed)
        rows = sorted(case.rows, key=lambda row: row[1] > 1)  # single tokens first, as they come from the builder
        ends = [before + new for before, new in rows]
        width = -(-max(ends) // case.block_size)
        blocks = width * len(rows)
        order = torch.randperm(blocks, generator=dice).view(len(rows), width)
        tokens = sum(new for _, new in rows)

        def draw(count: int, heads: int) -> torch.Tensor:
            return torch.randn(count, heads, case.dim, generator=dice).to(case.dtype)

        self.query = draw(tokens, case.heads)
        self.history = [(draw(end, case.kv_heads), draw(end, case.kv_heads)) for end in ends]
        kept_as = torch.int8 if case.int8 else case.dtype
        shape = KVShape(layers=1, kv_heads=case.kv_heads, head_dim=case.dim, dtype=kept_as)
        self.cache = KVCache(shape, blocks, case.block_size, CPU)
        contents = self.entries() if case.int8 else list(self.cache.layers[0])
        slots: list[int] = []
        for row, (before, new) in enumerate(rows):
            places = [
                int(order[row, at // case.block_size]) * case.block_size + at % case.block_size
                for at in range(before + new)
            ]
            for pool, kept in zip(contents, self.history[row], strict=True):
                pool.view(-1, *pool.shape[2:])[places[:before]] = (to_entries(kept) if case.int8 else kept)[:before]
            slots += places[before:]
        if case.int8:
            self.fill(contents)
        news = [new for _, new in rows]
        self.key = torch.cat([keys[-new:] for (keys, _), new in zip(self.history, news, strict=True)])
        self.value = torch.cat([values[-new:] for (_, values), new in zip(self.history, news, strict=True)])
        self.rows = rows
        singles = sum(new == 1 for new in news)
        groups, first = [], 0
        for part in (slice(0, singles), slice(singles, len(rows))):
            if rows[part]:
                groups.append(self._group(rows[part], order[part], first))
                first += groups[-1].tokens
        empty = torch.zeros(1, tokens, dtype=torch.int64)
        self.batch = Batch(empty, empty, torch.tensor(slots), torch.zeros(1, dtype=torch.int64), tuple(groups))

    def _group(self, rows: list[tuple[int, int]], order: torch.Tensor, first: int) -> RowGroup:
        longest = max(new for _, new in rows)
        columns = torch.arange(longest)
        starts = torch.tensor([before for before, _ in rows])
        counts = torch.tensor([new for _, new in rows])
        inside = columns < counts[:, None]
        return RowGroup(
            first=first,
            tokens=int(counts.sum()),
            rows=len(rows),
            longest=longest,
            block_tables=order[:, : -(-int((starts + counts).max()) // self.case.block_size)].contiguous(),
            context_lens=starts + counts,
            query_positions=torch.where(inside, starts[:, None] + columns, -1),
            padded_index=None if bool(inside.all()) else torch.nonzero(inside.view(-1)).view(-1),
        )

    def entries(self) -> list[torch.Tensor]:
        """The 8-bit entries of keys and of values, by block and token."""
        return [entries_of(pool, keys=place == 0) for place, pool in enumerate(self.cache.layers[0])]

    def fill(self, entries: list[torch.Tensor]) -> None:
        """The inverse of `entries`."""
        for place, (pool, each) in enumerate(zip(self.cache.layers[0], entries, strict=True)):
            fill(pool, each, keys=place == 0)

    def _kept(self, part: torch.Tensor) -> torch.Tensor:
        """Keys or values as the cache has them."""
        return from_entries(to_entries(part)) if self.case.int8 else part

    def take_written(self) -> None:
        """Make the entries that were written part of what came before: an element between two integers takes either."""
        kept = [from_entries(each.flatten(0, 1)[self.batch.slot_mapping]) for each in self.entries()]
        news = [new for _, new in self.rows]
        for row, written in enumerate(zip(*(part.split(news) for part in kept), strict=True)):
            keys, values = (
                torch.cat([before[: -news[row]].float(), new])
                for before, new in zip(self.history[row], written, strict=True)
            )
            self.history[row] = keys, values

    def attend(self, backend: PagedAttention) -> torch.Tensor:
        """[tokens, heads, dim] by this backend, queries and the rest as the views that transformers hands over."""
        query, key, value = (part.unsqueeze(0).transpose(1, 2) for part in (self.query, self.key, self.value))
        out, _ = backend(
            SimpleNamespace(layer_idx=0),
            query,
            key,
            value,
            None,
            scaling=0.3,
            sliding_window=self.case.window,
            softcap=self.case.softcap,
            sluice_batch=self.batch,
            sluice_cache=self.cache,
        )
        return out[0]

    def dense(self) -> torch.Tensor:
        """The same in float64, a row and a token at a time."""
        out, at = [], 0
        group = self.case.heads // self.case.kv_heads
        for (before, new), (keys, values) in zip(self.rows, self.history, strict=True):
            for position in range(before, before + new):
                oldest = 0 if self.case.window is None else max(0, position - self.case.window + 1)
                seen = slice(oldest, position + 1)
                key, value = (
                    self._kept(part[seen]).double().repeat_interleave(group, dim=1) for part in (keys, values)
                )
                scores = torch.einsum("hd,nhd->hn", self.query[at].double(), key) * 0.3
                if self.case.softcap is not None:
                    scores = self.case.softcap * torch.tanh(scores / self.case.softcap)
                out.append(torch.einsum("hn,nhd->hd", scores.softmax(-1), value))
                at += 1
        return torch.stack(out)


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


PLAIN = Case(((30, 1), (40, 1), (5, 1), (0, 9), (17, 33)), 8, 2, 64, 16, None, None, torch.float32, 1)


# Rows beyond what a softmax covers at once, so that a window hides whole groups of keys of some tokens and not of others.
LONG = Case(((230, 1), (64, 1), (200, 40), (0, 150)), 8, 2, 64, 16, None, None, torch.float32, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [None, 40, 64, 100])
def test_windows_over_long_contexts_hide_what_is_older(
    backend: Backend, window: int | None, dtype: torch.dtype
) -> None:
    case = replace(LONG, window=window, dtype=dtype)
    want, limit = Setting(case).dense(), TOLERANCE[dtype]
    torch.testing.assert_close(Setting(case).attend(backend(1)).double(), want, rtol=limit, atol=limit)


@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_the_kernel_writes_and_attends_to_8_bit_entries_at_every_level(library: Path, level: int, case: Case) -> None:
    setting = Setting(replace(case, int8=True))
    got = setting.attend(PagedAttention(native=NativeAttention(1, library, level, always))).double()
    setting.take_written()
    torch.testing.assert_close(got, setting.dense(), rtol=WIDENED[case.dtype], atol=WIDENED[case.dtype])
    places = setting.batch.slot_mapping
    for entries, news in zip(setting.entries(), (setting.key, setting.value), strict=True):
        written, formula = entries.flatten(0, 1)[places], to_entries(news)
        step = news.float().abs().amax(dim=-1, keepdim=True) / 127
        assert bool(((from_entries(written) - from_entries(formula)).abs() <= 1.01 * step).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [None, 40, 64, 100])
def test_windows_hide_8_bit_entries_that_are_older(
    library: Path, level: int, window: int | None, dtype: torch.dtype
) -> None:
    setting = Setting(replace(LONG, window=window, dtype=dtype, int8=True))
    got = setting.attend(PagedAttention(native=NativeAttention(1, library, level, always))).double()
    setting.take_written()
    torch.testing.assert_close(got, setting.dense(), rtol=WIDENED[dtype], atol=WIDENED[dtype])


def test_a_token_is_erased_from_8_bit_entries_and_no_other() -> None:
    setting, places = Setting(replace(PLAIN, int8=True)), torch.tensor([0, 21, 22, 63])
    before = setting.entries()
    assert all(bool(each.flatten(0, 1)[places].any()) for each in before)
    setting.cache.erase(places)
    for now, was in zip(setting.entries(), before, strict=True):
        was.flatten(0, 1)[places] = 0
        assert torch.equal(now, was)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("where", ["query", "key", "value"])
@pytest.mark.parametrize("strange", [math.nan, math.inf])
def test_a_row_that_is_not_finite_affects_no_other_through_8_bit_entries(
    library: Path, level: int, strange: float, where: str, dtype: torch.dtype
) -> None:
    setting = Setting(replace(PLAIN, dtype=dtype, int8=True))
    getattr(setting, where)[1, :, 7].fill_(strange)  # of the second row's only token
    got = setting.attend(PagedAttention(native=NativeAttention(1, library, level, always))).isnan().flatten(1)
    assert got[1].all() and not got[torch.arange(len(got)) != 1].any()


@pytest.mark.parametrize("size", [2.0**-70, 2.0**100])
def test_8_bit_entries_of_any_magnitude_are_attended_to(library: Path, level: int, size: float) -> None:
    setting = Setting(replace(PLAIN, dtype=torch.bfloat16, int8=True))
    setting.query.mul_(1 / size)
    for keys, values in setting.history:
        keys.mul_(size), values.mul_(size)
    setting.key.mul_(size), setting.value.mul_(size)
    entries = setting.entries()
    for each in entries:
        scales = each[..., -4:].contiguous().view(torch.float32) * size
        each[..., -4:] = scales.view(torch.int8)
    setting.fill(entries)
    got = setting.attend(PagedAttention(native=NativeAttention(1, library, level, always))).double()
    torch.testing.assert_close(got, setting.dense(), rtol=0.03, atol=0.03 * size)


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

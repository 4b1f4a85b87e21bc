"""Keys and values as 8-bit integers: the compiled kernel at each level of instructions writes and attends to them."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings

from sluice_engine.backend.cpu.native import NativeAttention
from sluice_engine.model.attention import PagedAttention
from sluice_engine.model.int8_entries import from_entries, to_entries
from tests.engine.backend.compiled import always
from tests.engine.model.attention_step import LONG, PLAIN, Case, Setting, cases

WIDENED = {torch.float32: 2e-5, torch.bfloat16: 4e-2}  # chunks of prompts round 8-bit entries to bfloat16


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

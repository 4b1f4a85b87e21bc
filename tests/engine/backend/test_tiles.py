"""AMX tiles: products equal those of AVX-512, in memory where the processor has none, and are used only where they pay."""

import logging
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice_engine.backend.cpu.native import BF16_LEVEL, NativeAttention
from sluice_engine.backend.cpu.tiles import (
    ATTENTION_ROWS,
    ROWS,
    TILE_LEVEL,
    Compute,
    attention_rows,
    least_faster,
    product_rows,
)
from tests.engine.backend.compiled import always, compiled_product, packed


@pytest.fixture(scope="module")
def kernel(library: Path, best_level: int) -> NativeAttention:
    """With tiles. Skips where the processor lacks the AVX-512 that goes with them."""
    if best_level < TILE_LEVEL:
        pytest.skip("this processor has no AVX-512 with bf16")
    return NativeAttention(1, library, choose=always)


@st.composite
def products(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Rows, weight and bias of bfloat16 with all sizes around the tiles' 16 rows, 32 inputs and 32 outputs."""
    count, inner, outer = draw(st.integers(0, 100)), 2 * draw(st.integers(1, 80)), draw(st.integers(1, 100))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    rows, weight, bias = (
        torch.randn(*sizes, generator=generator) for sizes in ((count, inner), (outer, inner), (outer,))
    )
    return rows.bfloat16(), weight.bfloat16(), bias.bfloat16() if draw(st.booleans()) else None


@settings(max_examples=100, deadline=None)
@given(product=products())
def test_a_bfloat16_product_by_tiles_equals_float32s(
    kernel: NativeAttention, product: tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
) -> None:
    rows, weight, bias = product
    got = compiled_product(kernel.library, TILE_LEVEL, rows, weight, bias, int8=False)
    want = torch.nn.functional.linear(rows.float(), weight.float(), None if bias is None else bias.float())
    torch.testing.assert_close(got.float(), want, rtol=2**-8, atol=1e-4 * rows.shape[1] ** 0.5)


@settings(max_examples=60, deadline=None)
@given(product=products())
def test_an_int8_product_by_tiles_equals_that_of_vectors_bit_for_bit(
    kernel: NativeAttention, product: tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
) -> None:
    tiled, plain = (compiled_product(kernel.library, level, *product) for level in (TILE_LEVEL, BF16_LEVEL))
    assert torch.equal(tiled, plain)


def test_probes_compare_what_the_library_computes(kernel: NativeAttention) -> None:
    equal: list[tuple[int, int]] = []

    def compare(compute: Compute, rows: tuple[int, ...]) -> int:
        for count in rows:
            plain, tiled = compute(count, False).float().clone(), compute(count, True).float()
            assert float(plain.abs().max()) > 0
            torch.testing.assert_close(tiled, plain, rtol=0, atol=2**-7 * float(plain.abs().max()))
            equal.append((count, len(plain)))
        return rows[0]

    weight = torch.randn(200, 96, generator=torch.Generator().manual_seed(1)).bfloat16()
    for int8 in (False, True):
        compiled = packed(kernel.library, TILE_LEVEL, weight, int8=int8)
        assert product_rows(kernel.library, compiled.product, True, compare) == ROWS[0]
    assert attention_rows(kernel.library, 64, compare) == ATTENTION_ROWS[0]
    assert attention_rows(kernel.library, 48, compare) == 0  # heads that are no multiple of 32 have no tiles
    assert len(equal) == 3 * len(ROWS)


@pytest.mark.parametrize(
    ("faster", "expected"), [((), 0), ((64,), 64), ((16, 64), 16), ((1, 4, 16, 64), 1), ((1, 16), 0), ((4, 64), 64)]
)
def test_tiles_are_used_from_the_least_number_of_rows_from_which_on_they_are_faster(
    monkeypatch: pytest.MonkeyPatch, faster: tuple[int, ...], expected: int
) -> None:
    now = 0.0

    def compute(rows: int, tiled: bool) -> torch.Tensor:
        nonlocal now
        now += rows * (0.9 if tiled and rows in faster else 1.1 if tiled else 1.0)
        return torch.ones(rows)

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    assert least_faster(compute, ROWS) == expected


@pytest.mark.parametrize("wrong", [2.0, float("nan")])
def test_tiles_that_give_other_numbers_are_not_used(wrong: float, caplog: pytest.LogCaptureFixture) -> None:
    def compute(rows: int, tiled: bool) -> torch.Tensor:
        return torch.full((rows,), wrong if tiled else 1.0)

    with caplog.at_level(logging.WARNING):
        assert least_faster(compute, ROWS) == 0
    assert "AMX tiles give other numbers than AVX-512 with 64 rows" in caplog.text

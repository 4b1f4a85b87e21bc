"""Unpacked weights in the layout of the products: every value, scale and zero is where the reference reads it."""

import random

import pytest
import torch

from sluice_kernels import grouped_weights
from sluice_kernels.repack import repack
from sluice_kernels.w4a16 import w4a16
from sluice_kernels.w8a16 import w8a16

PRODUCTS = {4: w4a16, 8: w8a16}


def drawn(bits: int, inner: int, groups: int, outputs: int = 5) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(bits + inner)
    values = torch.randint(0, 1 << bits, (inner, outputs), dtype=torch.uint8, generator=generator)
    zeros = torch.randint(0, (1 << bits) + 1, (groups, outputs), generator=generator)
    return values, torch.rand(groups, outputs, generator=generator), zeros


@pytest.mark.parametrize("bits", [4, 8])
def test_each_value_has_the_place_that_the_layout_names(bits: int) -> None:
    values, scales, zeros = drawn(bits, 256, 2)
    words, parts = repack(values, scales, zeros, bits).words, 32 // bits
    for row in range(256):
        group, within = divmod(row, 128)
        part, step = divmod(within, 128 // parts)
        for column in range(5):
            word = int(words[group * (128 // parts) + step, column])
            assert (word >> (part * bits)) & ((1 << bits) - 1) == int(values[row, column])


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("inner", "groups"), [(128, 1), (512, 4), (512, 2), (384, 1)])
def test_the_product_is_that_of_the_dequantised_weights(bits: int, inner: int, groups: int) -> None:
    values, scales, zeros = drawn(bits, inner, groups)
    size = inner // groups
    dense = torch.stack([(values[row].double() - zeros[row // size]) * scales[row // size] for row in range(inner)])
    x = torch.randn(3, inner, generator=torch.Generator().manual_seed(0))
    got = PRODUCTS[bits](x, repack(values, scales, zeros, bits))
    torch.testing.assert_close(got.double(), x.double() @ dense, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("bits", [4, 8])
def test_rows_in_activation_order_are_sorted_by_group(bits: int) -> None:
    values, scales, zeros = drawn(bits, 384, 3)
    group_of = [row // 128 for row in range(384)]
    random.Random(0).shuffle(group_of)
    dense = torch.stack([(values[row].double() - zeros[at]) * scales[at] for row, at in enumerate(group_of)])
    x = torch.randn(3, 384, generator=torch.Generator().manual_seed(0))
    weights = repack(values, scales, zeros, bits, torch.tensor(group_of, dtype=torch.int32))
    assert weights.order is not None and sorted(weights.order.tolist()) == list(range(384))
    torch.testing.assert_close(PRODUCTS[bits](x, weights).double(), x.double() @ dense, rtol=1e-5, atol=1e-3)


def test_a_trivial_order_costs_nothing() -> None:
    values, scales, zeros = drawn(4, 256, 2)
    assert repack(values, scales, zeros, 4, torch.arange(256) // 128).order is None


@pytest.mark.parametrize("bits", [4, 8])
def test_packing_is_undone_by_unpacking(bits: int) -> None:
    values, _, _ = drawn(bits, 256, 2)
    assert torch.equal(grouped_weights.unpack(grouped_weights.pack(values, bits), bits), values.int())


def test_groups_that_do_not_fit_the_kernel_are_refused() -> None:
    values, scales, zeros = drawn(4, 256, 2)
    with pytest.raises(ValueError, match="values: expected an inner size that is a multiple of 128, got 200"):
        repack(values[:200], scales, zeros, 4)
    with pytest.raises(ValueError, match=r"group_of: expected groups of a multiple of 128 rows, got one of 64"):
        repack(values, scales.repeat(2, 1), zeros.repeat(2, 1), 4)
    with pytest.raises(ValueError, match="scales: expected a number of groups that divides the 256 rows, got 3"):
        repack(values, torch.ones(3, 5), torch.ones(3, 5), 4)

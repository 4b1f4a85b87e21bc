"""Both formats unpacked, against a bit-by-bit reading in plain Python, and repacked for the kernels."""

import random
from collections.abc import Callable

import pytest
import torch

from sluice.models.quantisation import Quantisation
from sluice_engine.model.quantised.checkpoint import unpack_layer
from sluice_engine.model.quantised.unpack import Unpacked
from sluice_kernels.repack import repack
from sluice_kernels.w4a16 import w4a16
from sluice_kernels.w8a16 import w8a16

PRODUCTS = {4: w4a16, 8: w8a16}
INNER, OUTPUTS = 256, 16


def words(rows: int, columns: int, seed: int) -> torch.Tensor:
    """Random words, negative ones included."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-(2**31), 2**31, (rows, columns), generator=generator).to(torch.int32)


def field(word: int, part: int, bits: int) -> int:
    """Part `part` of a word as its bits say."""
    digits = format(word & 0xFFFFFFFF, "032b")
    return int(digits[32 - (part + 1) * bits : 32 - part * bits], 2)


def gptq(bits: int, offset: int, group_of: list[int] | None = None) -> tuple[Unpacked, list[list[float]]]:
    """A random GPTQ layer as the loader unpacks it, and its weight [inner][outputs] in plain Python."""
    parts, groups = 32 // bits, INNER // 128
    qweight, qzeros = words(INNER // parts, OUTPUTS, 1), words(groups, OUTPUTS // parts, 2)
    scales = torch.rand(groups, OUTPUTS, generator=torch.Generator().manual_seed(3))
    of = group_of or [row // 128 for row in range(INNER)]
    expected = []
    for row in range(INNER):
        line = []
        for column in range(OUTPUTS):
            value = field(int(qweight[row // parts, column]), row % parts, bits)
            zero = field(int(qzeros[of[row], column // parts]), column % parts, bits) + offset
            line.append((value - zero) * float(scales[of[row], column]))
        expected.append(line)
    tensors = {"qweight": qweight, "qzeros": qzeros, "scales": scales, "g_idx": torch.tensor(of, dtype=torch.int32)}
    return unpack_layer("a", tensors, Quantisation("gptq", bits, 128, offset)), expected


def awq(bits: int) -> tuple[Unpacked, list[list[float]]]:
    """The same for AWQ, whose words hold outputs 0, 2, 4, 6, 1, 3, 5, 7 (8 bits: 0, 2, 1, 3)."""
    order = {4: [0, 2, 4, 6, 1, 3, 5, 7], 8: [0, 2, 1, 3]}[bits]
    parts, groups = 32 // bits, INNER // 128
    qweight, qzeros = words(INNER, OUTPUTS // parts, 4), words(groups, OUTPUTS // parts, 5)
    scales = torch.rand(groups, OUTPUTS, generator=torch.Generator().manual_seed(6))
    expected = []
    for row in range(INNER):
        line = []
        for column in range(OUTPUTS):
            part = order.index(column % parts)
            value = field(int(qweight[row, column // parts]), part, bits)
            zero = field(int(qzeros[row // 128, column // parts]), part, bits)
            line.append((value - zero) * float(scales[row // 128, column]))
        expected.append(line)
    tensors = {"qweight": qweight, "qzeros": qzeros, "scales": scales}
    return unpack_layer("a", tensors, Quantisation("awq", bits, 128, 0)), expected


def activation_order() -> list[int]:
    """Groups of 128 rows each, in random order."""
    of = [row // 128 for row in range(INNER)]
    random.Random(0).shuffle(of)
    return of


LAYERS: dict[str, tuple[int, Callable[[], tuple[Unpacked, list[list[float]]]]]] = {
    "gptq, 4 bits": (4, lambda: gptq(4, 1)),
    "gptq, 8 bits": (8, lambda: gptq(8, 1)),
    "gptq v2": (4, lambda: gptq(4, 0)),
    "gptq, activation order": (4, lambda: gptq(4, 1, activation_order())),
    "awq, 4 bits": (4, lambda: awq(4)),
    "awq, 8 bits": (8, lambda: awq(8)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_every_element_is_what_the_format_says(name: str) -> None:
    layer, expected = LAYERS[name][1]()
    torch.testing.assert_close(layer.dequantised(), torch.tensor(expected).T, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", LAYERS)
def test_the_kernels_layout_gives_the_same_product(name: str) -> None:
    bits, make = LAYERS[name]
    layer, expected = make()
    weights = repack(layer.values, layer.scales, layer.zeros, bits, layer.group_of)
    x = torch.randn(3, INNER, generator=torch.Generator().manual_seed(7))
    want = x.double() @ torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(PRODUCTS[bits](x, weights).double(), want, rtol=1e-4, atol=1e-2)


def test_a_last_group_of_fewer_inputs_is_unpacked() -> None:
    tensors = {"qweight": words(6, 8, 1), "qzeros": words(2, 1, 2), "scales": torch.ones(2, 8)}
    layer = unpack_layer("a", tensors, Quantisation("gptq", 4, 32, 1))
    assert layer.group_of.tolist() == [0] * 32 + [1] * 16
    assert layer.dequantised().shape == (8, 48)

"""Weight-only quantisation in groups: integers of 4 or 8 bits with one scale and one zero point per 128 inputs and output.

It holds the layout that both products read, in plain torch. The layout is shuffled in advance: a word holds rows of its
group that are `GROUP / parts` apart, so that one shift gives a tile of consecutive rows and no value crosses threads.
"""

from dataclasses import dataclass
from typing import Final

import torch

from sluice_kernels import arguments

GROUP: Final = 128
MOST_ROWS: Final = 64  # beyond, the product is bound by arithmetic: it is cheaper to dequantise once
WORD: Final = 32


@dataclass(frozen=True)
class GroupedWeights:
    """The weights of a linear layer, (value - zero) · scale.

    Part i of word w of group g, its bits i · bits and above, is row g · GROUP + i · GROUP / parts + w.
    """

    words: torch.Tensor  # [inner / parts, outputs] int32
    scales: torch.Tensor  # [inner / GROUP, outputs] float32, float16 or bfloat16
    zeros: torch.Tensor  # [inner / GROUP, outputs] int16
    order: torch.Tensor | None = None  # [inner] int64: row r multiplies column order[r] of x; None: column r


def pack(values: torch.Tensor, bits: int) -> torch.Tensor:
    """values [inner, outputs] from 0 to 2^bits - 1 → words [inner / parts, outputs] int32."""
    parts = WORD // bits
    rows, outputs = values.shape
    grouped = values.to(torch.int64).view(rows // GROUP, parts, GROUP // parts, outputs)
    shifts = torch.arange(0, WORD, bits, device=values.device).view(1, parts, 1, 1)
    words = (grouped << shifts).sum(1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32).reshape(rows // parts, outputs)


def unpack(words: torch.Tensor, bits: int) -> torch.Tensor:
    """The inverse of `pack`, int32."""
    parts = WORD // bits
    rows, outputs = words.shape[0] * parts, words.shape[1]
    shifts = torch.arange(0, WORD, bits, dtype=torch.int32, device=words.device).view(1, parts, 1, 1)
    grouped = words.view(rows // GROUP, 1, GROUP // parts, outputs) >> shifts
    return (grouped & ((1 << bits) - 1)).reshape(rows, outputs)


def dequantised(weights: GroupedWeights, bits: int) -> torch.Tensor:
    """The matrix [inner, outputs] in float32, rows as in the words."""
    values = unpack(weights.words, bits).unflatten(0, (-1, GROUP))
    return ((values - weights.zeros[:, None]).float() * weights.scales.float()[:, None]).flatten(0, 1)


def ordered(x: torch.Tensor, weights: GroupedWeights) -> torch.Tensor:
    """The columns of x in the order of the words' rows."""
    return x if weights.order is None else x.index_select(1, weights.order)


def product(x: torch.Tensor, weights: GroupedWeights, bits: int) -> torch.Tensor:
    """x [rows, inner] → [rows, outputs] in x's dtype, in float32 and rounded once: the specification of both kernels."""
    return (ordered(x, weights).float() @ dequantised(weights, bits)).to(x.dtype)


def dequantised_product(x: torch.Tensor, weights: GroupedWeights, bits: int) -> torch.Tensor:
    """The same by torch's product of x and the weights rounded to its dtype, for many rows."""
    return ordered(x, weights) @ dequantised(weights, bits).to(x.dtype)


def refusal(name: str, inner: int, dtype: torch.dtype) -> str | None:
    """None if the kernel `name` supports this inner size and dtype of x, else the reason."""
    if inner < GROUP or inner % GROUP:
        return f"{name} supports inner sizes that are multiples of its group of {GROUP}, not {inner}"
    if dtype not in arguments.FLOATS:
        return f"{name} supports float32, float16 and bfloat16, not {dtype}"
    return None


def check(x: torch.Tensor, weights: GroupedWeights, bits: int, reason: str | None) -> None:
    """Raises ValueError for an argument that does not match; `reason` is the answer of the kernel's `can_use`."""
    arguments.check_supported("x", reason)
    arguments.check_rows("x", x)
    inner, outputs = x.shape[1], weights.words.shape[-1]
    arguments.check_shape("weights.words", weights.words, "[inner / parts, outputs]", inner * bits // WORD, outputs)
    arguments.check_dtype("weights.words", weights.words, torch.int32)
    for name, tensor, dtypes in (
        ("scales", weights.scales, arguments.FLOATS),
        ("zeros", weights.zeros, (torch.int16,)),
    ):
        arguments.check_shape(f"weights.{name}", tensor, "[inner / 128, outputs]", inner // GROUP, outputs)
        arguments.check_dtype(f"weights.{name}", tensor, *dtypes)
    if weights.order is not None:
        arguments.check_shape("weights.order", weights.order, "[inner]", inner)
        arguments.check_dtype("weights.order", weights.order, torch.int64)
        arguments.check_contiguous("weights.order", weights.order)
    for name in ("words", "scales", "zeros"):
        arguments.check_contiguous(f"weights.{name}", getattr(weights, name))
    of_weights = {f"weights.{name}": getattr(weights, name) for name in ("words", "scales", "zeros", "order")}
    arguments.check_device(x, **of_weights)

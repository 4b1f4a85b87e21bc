"""The product with grouped weights in Triton, for few rows: bound by the memory traffic of the weights.

One program per (tile of outputs, split of the groups) goes through its groups. With one split it writes the result; with
more, a second launch adds them in a fixed order. The number of splits depends on the weights alone, so that the order of a
row's sum does not depend on its batch.

A value becomes a float without a conversion instruction: q | 0x4B000000 is the bit pattern of 2^23 + q, and subtracting
2^23 + zero is exact (Kim et al., "Who Says Elephants Can't Run", arXiv:2211.10017, section 4.1). q - zero has at most nine
bits, of which ±256 is the largest, so bfloat16 holds it exactly too; the scale multiplies the sum of the group.
"""

from dataclasses import dataclass
from typing import Final

import torch
import triton
import triton.language as tl

from sluice_kernels import launch
from sluice_kernels.grouped_weights import GROUP, GroupedWeights, ordered
from sluice_kernels.integers import cdiv, next_power_of_2
from sluice_kernels.paged_decode.triton import operand_of

MIN_ROWS: Final = 16  # tl.dot's smallest tile
MOST_SPLITS: Final = 8
GROUPS_PER_SPLIT: Final = 4  # fewer cost more to add than they gain
PROGRAMS_PER_MULTIPROCESSOR: Final = 4  # they hide each other's load latency
SPLIT_TILE: Final = 64  # outputs; the splits are those of such tiles, whatever the rows' own is
SUMMED: Final = 1024  # elements per program of the second launch


@dataclass(frozen=True)
class Config:
    """A program computes a tile of `columns` outputs."""

    columns: int
    warps: int
    stages: int


@triton.jit(do_not_specialize=["row_count"])
def _grouped_product(  # type: ignore[no-untyped-def]
    x,  # [row_count, inner]
    words,  # [inner / parts, width] int32
    scales,  # [groups, width]
    zeros,  # [groups, width] int16
    out,  # one split: [row_count, width], else [splits, row_count, width] float32
    row_count,
    x_stride,
    width,
    groups,
    groups_per_split,
    bits: tl.constexpr,
    group_size: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    operand: tl.constexpr,
):
    parts: tl.constexpr = 32 // bits
    depth: tl.constexpr = group_size // parts
    column = tl.program_id(0) * columns + tl.arange(0, columns)
    split = tl.program_id(1).to(tl.int64)
    row, step = tl.arange(0, rows), tl.arange(0, depth)
    used, inside = row < row_count, column < width
    x_at = x + row.to(tl.int64)[:, None] * x_stride + step[None, :]
    acc = tl.zeros([rows, columns], tl.float32)
    first = tl.program_id(1) * groups_per_split
    for group in range(first, tl.minimum(first + groups_per_split, groups)):
        word_at = words + (group * depth + step).to(tl.int64)[:, None] * width + column[None, :]
        word = tl.load(word_at, mask=inside[None, :], other=0)
        at = group * width + column
        scale = tl.load(scales + at, mask=inside, other=0.0).to(tl.float32)
        zero = 8388608.0 + tl.load(zeros + at, mask=inside, other=0).to(tl.float32)
        total = tl.zeros([rows, columns], tl.float32)
        for part in tl.static_range(parts):
            bits_of_float = ((word >> (part * bits)) & ((1 << bits) - 1)) | 0x4B000000
            value = bits_of_float.to(tl.float32, bitcast=True) - zero[None, :]
            a = tl.load(x_at + group * group_size + part * depth, mask=used[:, None], other=0.0)
            total = tl.dot(a.to(operand), value.to(operand), total, input_precision="ieee")
        acc += total * scale[None, :]
    place = out + (split * row_count + row)[:, None] * width + column[None, :]
    tl.store(place, acc.to(out.dtype.element_ty), mask=used[:, None] & inside[None, :])


@triton.jit
def _sum_splits(  # type: ignore[no-untyped-def]
    partial,  # [splits, count] float32
    out,  # [count]
    count,
    splits: tl.constexpr,
    block: tl.constexpr,
):
    index = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = index < count
    acc = tl.zeros([block], tl.float32)
    for split in range(splits):
        acc += tl.load(partial + split * count + index, mask=inside, other=0.0)
    tl.store(out + index, acc.to(out.dtype.element_ty), mask=inside)


def splits_for(tiles: int, groups: int, multiprocessors: int) -> int:
    """The number of splits (a power of two) that fills the device."""
    wanted = -(-PROGRAMS_PER_MULTIPROCESSOR * multiprocessors // tiles)
    useful = -(-groups // GROUPS_PER_SPLIT)
    return 1 << (max(1, min(wanted, useful, MOST_SPLITS)).bit_length() - 1)


def grouped_product(
    x: torch.Tensor, weights: GroupedWeights, bits: int, config: Config, splits: int | None = None
) -> torch.Tensor:
    """Computes `grouped_weights.product` for at most MOST_ROWS rows. None: the number of splits follows from the shapes."""
    x = ordered(x, weights)
    count, width, groups = x.shape[0], weights.words.shape[1], weights.scales.shape[0]
    out = launch.empty((count, width), x.dtype, x.device)
    if count == 0 or width == 0:
        return out
    tiles = cdiv(width, config.columns)
    if splits is None:
        splits = splits_for(cdiv(width, SPLIT_TILE), groups, launch.device_of(x).multiprocessors)
    partial = out if splits == 1 else launch.empty((splits, count, width), torch.float32, x.device)
    launch.launch(
        _grouped_product, (tiles, splits),
        (
            x, weights.words, weights.scales, weights.zeros, partial,
            count, x.stride(0), width, groups, cdiv(groups, splits),
        ),
        bits=bits, group_size=GROUP, rows=max(MIN_ROWS, next_power_of_2(count)), columns=config.columns,
        operand=operand_of(x), num_warps=config.warps, num_stages=config.stages,
    )  # fmt: skip
    if splits > 1:
        total = count * width
        launch.launch(
            _sum_splits, (cdiv(total, SUMMED),), (partial, out, total), splits=splits, block=SUMMED, num_warps=4
        )
    return out

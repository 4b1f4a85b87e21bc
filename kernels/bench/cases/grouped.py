"""Correctness cases of `w4a16` and `w8a16`. Rows of x lie between NaN, weights between poison, outputs between guards."""

from dataclasses import dataclass
from typing import Final

import torch
from bench.cases.compare import same
from bench.cases.memory import guarded, poisoned, surrounded

from sluice_kernels.grouped_weights import GROUP, GroupedWeights, pack, product
from sluice_kernels.w4a16.triton import w4a16_triton
from sluice_kernels.w8a16.triton import w8a16_triton

TRITON: Final = {4: w4a16_triton, 8: w8a16_triton}
ROUNDING: Final = 1e-5  # of the largest output: sums of the same products in another order


@dataclass(frozen=True)
class Case:
    """One call. `splits` None: as the shapes say. `bad_row` gets a NaN, which must stay in that row."""

    bits: int
    rows: int
    groups: int
    outputs: int
    dtype: torch.dtype = torch.float32
    scales: torch.dtype = torch.float16
    splits: int | None = None
    magnitude: float = 1.0
    extremes: bool = False  # values and zeros are the least and the largest
    shuffled: bool = False  # the inputs have another order than the words' rows
    padding: int = 3
    bad_row: int | None = None
    seed: int = 0


def named(bits: int) -> dict[str, Case]:
    """The cases that an interpreter can afford."""
    return {
        "no rows": Case(bits, 0, 1, 16),
        "one row, one output": Case(bits, 1, 1, 1),
        "odd outputs": Case(bits, 3, 2, 77, torch.bfloat16),
        "more rows than the smallest tile": Case(bits, 17, 2, 33, torch.float16),
        "the most rows": Case(bits, 64, 2, 130, torch.bfloat16),
        "splits": Case(bits, 5, 8, 65, torch.bfloat16, splits=4),
        "a split without a group": Case(bits, 5, 5, 65, splits=4),
        "splits from the shapes": Case(bits, 2, 16, 64),
        "the largest values and zeros": Case(bits, 4, 2, 40, torch.bfloat16, extremes=True),
        "scales in bfloat16": Case(bits, 4, 2, 40, torch.bfloat16, scales=torch.bfloat16),
        "scales in float32": Case(bits, 4, 2, 40, torch.float16, scales=torch.float32),
        "inputs in another order": Case(bits, 4, 3, 40, torch.bfloat16, shuffled=True),
        "all zero": Case(bits, 3, 1, 40, magnitude=0.0),
        "a NaN in one row": Case(bits, 6, 2, 40, bad_row=2),
    }


def large(bits: int) -> dict[str, Case]:
    """The shapes of an 8B and a 70B model."""
    return {
        f"{rows} × {groups * GROUP} × {outputs} {str(dtype).removeprefix('torch.')}": Case(
            bits, rows, groups, outputs, dtype
        )
        for dtype in (torch.bfloat16, torch.float16, torch.float32)
        for rows in (1, 8, 32, 64)
        for groups, outputs in ((32, 14336), (112, 4096), (64, 10240), (224, 8192))
    }


def compare(case: Case, device: str) -> float:
    """Runs the kernel and the reference. Returns the largest error relative to the allowed one. Raises Mismatch."""
    generator = torch.Generator().manual_seed(case.seed)
    x = (torch.randn(case.rows, case.groups * GROUP, generator=generator) * case.magnitude).to(case.dtype)
    if case.bad_row is not None:
        x[case.bad_row, 3] = float("nan")
    weights = _weights(case, generator)
    given = poisoned(x, case.padding, device)
    on_device = GroupedWeights(
        surrounded(weights.words, 0x7FFFFFFF, device),
        surrounded(weights.scales, float("nan"), device),
        surrounded(weights.zeros, 0x7FFF, device),
        None if weights.order is None else weights.order.to(device),
    )
    with guarded(device):
        got = TRITON[case.bits](given, on_device, case.splits)
    return same(case, "out", got, product(x, weights, case.bits), slack=ROUNDING)


def _weights(case: Case, generator: torch.Generator) -> GroupedWeights:
    inner, most = case.groups * GROUP, 1 << case.bits
    values = torch.randint(0, most, (inner, case.outputs), generator=generator)
    zeros = torch.randint(0, most + 1, (case.groups, case.outputs), generator=generator)
    if case.extremes:
        values, zeros = (values % 2) * (most - 1), (zeros % 2) * most
    scales = torch.rand(case.groups, case.outputs, generator=generator) * 0.01
    order = torch.randperm(inner, generator=generator) if case.shuffled else None
    return GroupedWeights(pack(values, case.bits), scales.to(case.scales), zeros.to(torch.int16), order)

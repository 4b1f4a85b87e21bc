"""Correctness cases of `silu_mul` and `silu_mul_fp8`. Rows lie between NaN; outputs lie between guards."""

from dataclasses import dataclass
from typing import Final

import torch
from bench.cases.compare import same
from bench.cases.memory import guarded, poisoned

from sluice_kernels.silu_mul.reference import silu_mul_fp8_reference, silu_mul_reference
from sluice_kernels.silu_mul.triton import silu_mul_fp8_triton, silu_mul_triton


@dataclass(frozen=True)
class Case:
    """One call. `bad_row` gets a NaN, which must stay in that row."""

    rows: int
    width: int
    dtype: torch.dtype = torch.float32
    activation: str = "silu"
    fp8: bool = False
    magnitude: float = 1.0
    padding: int = 3
    bad_row: int | None = None
    seed: int = 0


NAMED: Final = {
    "no rows": Case(0, 64),
    "one row": Case(1, 64),
    "one column": Case(2, 1, activation="gelu_tanh"),
    "odd width": Case(5, 333, torch.bfloat16),
    "odd width over several tiles": Case(3, 4097, torch.float16, "gelu_tanh"),
    "fp8": Case(4, 700, torch.bfloat16, fp8=True),
    "fp8 over several tiles": Case(2, 8193, torch.bfloat16, "gelu_tanh", fp8=True),
    "odd width, fp8": Case(5, 333, torch.float16, fp8=True),
    "no rows, fp8": Case(0, 64, torch.bfloat16, fp8=True),
    "all zero": Case(3, 40, fp8=True, magnitude=0.0),
    "saturated": Case(6, 64, magnitude=200.0),
    "saturated gelu": Case(6, 64, activation="gelu_tanh", magnitude=200.0),
    "a NaN in one row of a tile": Case(6, 40, bad_row=2),
    "a NaN in an fp8 row": Case(6, 40, bad_row=2, fp8=True),
}
LARGE: Final = {
    f"{rows} × {width} {activation} {str(dtype).removeprefix('torch.')}{' fp8' if fp8 else ''}": Case(
        rows, width, dtype, activation, fp8
    )
    for dtype in (torch.bfloat16, torch.float16, torch.float32)
    for fp8 in (False, True)
    for activation in ("silu", "gelu_tanh")
    for rows, width in ((4096, 14336), (257, 28671))
}


def compare(case: Case, device: str) -> float:
    """Runs the kernel and the reference. Returns the largest error relative to the allowed one. Raises Mismatch."""
    generator = torch.Generator().manual_seed(case.seed)
    gate_up = (torch.randn(case.rows, 2 * case.width, generator=generator) * case.magnitude).to(case.dtype)
    if case.bad_row is not None:
        gate_up[case.bad_row, 0] = float("nan")
    given = poisoned(gate_up, case.padding, device)
    if case.fp8:
        with guarded(device):
            values, scales = silu_mul_fp8_triton(given, case.activation)
        expected = silu_mul_fp8_reference(gate_up, case.activation)
        return max(same(case, "scales", scales, expected[1]), same(case, "values", values, expected[0], slack=2e-5))
    with guarded(device):
        got = silu_mul_triton(given, case.activation)
    # A sigmoid near 0 has the absolute error of its exponent times itself; relative to the largest it vanishes.
    return same(case, "out", got, silu_mul_reference(gate_up, case.activation), slack=1e-6)

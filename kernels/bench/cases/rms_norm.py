"""Correctness cases of `rms_norm` and `rms_norm_fp8`. Rows lie between NaN; outputs lie between guards."""

from dataclasses import dataclass
from typing import Final

import torch
from bench.cases.compare import same
from bench.cases.memory import Mismatch, guarded, poisoned

from sluice_kernels.rms_norm.reference import rms_norm_fp8_reference, rms_norm_reference
from sluice_kernels.rms_norm.triton import rms_norm_fp8_triton, rms_norm_triton


@dataclass(frozen=True)
class Case:
    """One call. `bad_row` gets a NaN, which must stay in that row."""

    rows: int
    width: int
    dtype: torch.dtype = torch.float32
    residual: bool = False
    fp8: bool = False
    weight_offset: float = 0.0
    magnitude: float = 1.0
    padding: int = 3
    bad_row: int | None = None
    seed: int = 0


NAMED: Final = {
    "no rows": Case(0, 64),
    "one row": Case(1, 64, residual=True),
    "odd width": Case(5, 333, torch.bfloat16, residual=True),
    "one column": Case(3, 1),
    "more rows than one program": Case(37, 65, torch.float16),
    "weight offset": Case(4, 96, torch.bfloat16, weight_offset=1.0),
    "wide": Case(2, 16384, torch.bfloat16, residual=True),
    "wide and odd": Case(1, 16383, torch.float16, residual=True),
    "wide and odd, fp8": Case(1, 16383, torch.bfloat16, residual=True, fp8=True, weight_offset=1.0),
    "no rows, fp8": Case(0, 64, torch.bfloat16, residual=True, fp8=True),
    "tiny values": Case(3, 128, magnitude=1e-12),
    "large values": Case(3, 128, torch.bfloat16, magnitude=1e15),
    "all zero": Case(3, 128, magnitude=0.0, fp8=True),
    "fp8": Case(9, 200, torch.bfloat16, residual=True, fp8=True),
    "a NaN in one of several rows of a tile": Case(6, 40, bad_row=2, residual=True),
    "a NaN in an fp8 row": Case(6, 40, bad_row=2, fp8=True),
}
LARGE: Final = {
    f"{rows} × {width} {str(dtype).removeprefix('torch.')}{' fp8' if fp8 else ''}": Case(
        rows, width, dtype, residual=True, fp8=fp8
    )
    for dtype in (torch.bfloat16, torch.float16, torch.float32)
    for fp8 in (False, True)
    for rows, width in ((8192, 4096), (257, 16383), (4096, 128))
}


def compare(case: Case, device: str) -> float:
    """Runs the kernel and the reference. Returns the largest error relative to the allowed one. Raises Mismatch."""
    generator = torch.Generator().manual_seed(case.seed)

    def normal(*shape: int) -> torch.Tensor:
        return (torch.randn(shape, generator=generator) * case.magnitude).to(case.dtype)

    x, residual = normal(case.rows, case.width), normal(case.rows, case.width) if case.residual else None
    weight = torch.randn(case.width, generator=generator).to(case.dtype)
    if case.bad_row is not None:
        x[case.bad_row, case.width // 2] = float("nan")
    given = poisoned(x, case.padding, device)
    given_residual = None if residual is None else poisoned(residual, case.padding, device)
    options = (1e-6, case.weight_offset)
    with guarded(device):
        if case.fp8:
            got, scales = rms_norm_fp8_triton(given, weight.to(device), *options, given_residual)
        else:
            got = rms_norm_triton(given, weight.to(device), *options, given_residual)
    if case.fp8:
        expected = rms_norm_fp8_reference(x, weight, *options, residual)
        errors = [same(case, "scales", scales, expected[1])]
        errors.append(same(case, "values", got, expected[0], slack=2.0**-9 / 448))
    else:
        errors = [same(case, "out", got, rms_norm_reference(x, weight, *options, residual))]
    if residual is not None and given_residual is not None:
        same(case, "residual", given_residual.cpu(), residual)
        around = given_residual._base
        if around is None or int(around.isnan().sum()) != around.numel() - int((~residual.isnan()).sum()):
            raise Mismatch(f"{case}: wrote outside the residual's rows")
    return max(errors)

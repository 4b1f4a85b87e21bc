"""Comparison of a kernel's output with its reference's, with one tolerance per dtype."""

from typing import Final

import torch
from bench.cases.memory import Mismatch

# Relative to the element: both sides round once to the dtype, so they differ by one unit in the last place at most.
ELEMENT: Final = {
    torch.float32: 4e-6,
    torch.float16: 2.0**-9,
    torch.bfloat16: 2.0**-7,
    torch.float8_e4m3fn: 2.0**-3,
}
SMALLEST: Final = 1e-30


def same(case: object, name: str, got: torch.Tensor, expected: torch.Tensor, slack: float = 0.0) -> float:
    """Elements are equal up to their dtype's tolerance, plus `slack` times the largest finite value; NaN and infinity
    stand in the same places. Returns the largest error relative to the allowed one. Raises Mismatch.
    """
    got = got.cpu()
    if got.shape != expected.shape or got.dtype != expected.dtype:
        raise Mismatch(f"{case}: {name} is {list(got.shape)} {got.dtype}, not {list(expected.shape)} {expected.dtype}")
    if got.numel() == 0:
        return 0.0
    tolerance = ELEMENT.get(expected.dtype, 0.0)
    got64, expected64 = got.double(), expected.double()
    finite = expected64.isfinite()
    if not torch.equal(got64[~finite].nan_to_num(7.0), expected64[~finite].nan_to_num(7.0)):
        raise Mismatch(f"{case}: {name} differs from the reference in its values that are not finite")
    if not bool(finite.any()):
        return 0.0
    want, have = expected64[finite], got64[finite]
    if not bool(have.isfinite().all()):
        raise Mismatch(f"{case}: {name} has {int((~have.isfinite()).sum())} values that should be finite")
    allowed = want.abs() * tolerance + slack * float(want.abs().max()) + SMALLEST
    excess = (have - want).abs() / allowed
    if float(excess.max()) > 1.0:
        where = int(excess.argmax())
        raise Mismatch(f"{case}: {name} has {float(have[where])} where the reference has {float(want[where])}")
    return float(excess.max())

"""The fp8 format of the kernels, e4m3 without infinities, in plain torch. `tiles.py` has the same for Triton."""

from typing import Final

import torch

FP8: Final = torch.float8_e4m3fn
LARGEST: Final = 448.0
SMALLEST_SCALE: Final = 1e-12  # of a row of zeros
FIRST_ARCHITECTURE: Final = 89


def to_fp8(values: torch.Tensor) -> torch.Tensor:
    """Rounds to nearest even; values beyond ±448 become ±448, NaN stays."""
    return values.clamp(-LARGEST, LARGEST).to(FP8)


def quantise_rows(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """values [rows, width] float32 → e4m3 values and float32 scales [rows]: the largest of a row becomes 448. A row with
    NaN is NaN as a whole.
    """
    scales = (values.abs().amax(-1) / LARGEST).clamp(min=SMALLEST_SCALE)
    return to_fp8(values / scales[:, None]), scales


def refusal(architecture: int) -> str | None:
    """None if the architecture, 90 for sm_90, computes with fp8, else the reason."""
    if architecture >= FIRST_ARCHITECTURE:
        return None
    return f"fp8 needs an architecture of sm_{FIRST_ARCHITECTURE} or newer, this is sm_{architecture}"

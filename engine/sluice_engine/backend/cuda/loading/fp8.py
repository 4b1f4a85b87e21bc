"""Linear layers as e4m3 with one scale per output, made from the dense weights at load (`--quantization fp8`)."""

import logging
from typing import Final

import torch

from sluice_engine.backend.cuda.ops.products import Fp8Weight
from sluice_kernels import fp8
from sluice_kernels.fp8 import quantise_rows

_MULTIPLE: Final = 16  # of inputs and outputs, as cuBLAS's fp8 products ask for
_log = logging.getLogger(__name__)


def refusal() -> str | None:
    """None if the current GPU multiplies fp8, else the reason."""
    major, minor = torch.cuda.get_device_capability()
    return fp8.refusal(10 * major + minor)


class Fp8Layers:
    """The fp8 weight of each linear layer whose sizes allow it. `count`: so far."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, linear: torch.nn.Linear) -> Fp8Weight | None:
        """None for a layer that stays dense; the log says why."""
        outputs, inputs = linear.weight.shape
        if outputs % _MULTIPLE or inputs % _MULTIPLE:
            _log.info("a layer of %d × %d stays dense: fp8 needs multiples of %d", outputs, inputs, _MULTIPLE)
            return None
        self.count += 1
        return Fp8Weight(*quantise_rows(linear.weight.detach().float()))

"""The words of a GPTQ or AWQ layer → integers, one per element, in plain torch.

GPTQ (AutoGPTQ's `qlinear_cuda.py`) packs `qweight` [inner / parts, outputs] along the inputs and `qzeros` [groups,
outputs / parts] along the outputs, both from the lowest bits on. AWQ (AutoAWQ's `gemm.py`) packs both along the outputs,
in an order that suits its kernel. A scale applies to the inputs of its group: weight = (value - zero) · scale.
"""

from dataclasses import dataclass
from typing import Final

import torch

from sluice.models.quantisation import WORD_BITS

# Part i of a word holds this one of its outputs: AutoAWQ for 4 bits, vLLM's `awq_pack` for 8.
AWQ_ORDER: Final = {4: (0, 2, 4, 6, 1, 3, 5, 7), 8: (0, 2, 1, 3)}


@dataclass(frozen=True)
class Unpacked:
    """One layer's integers."""

    values: torch.Tensor  # [inner, outputs] uint8
    scales: torch.Tensor  # [groups, outputs]
    zeros: torch.Tensor  # [groups, outputs] int16
    group_of: torch.Tensor  # [inner] int64: the group of each input

    def dequantised(self) -> torch.Tensor:
        """The weight [outputs, inner] in float32, as torch.nn.Linear has it."""
        distance = self.values.to(torch.int16) - self.zeros[self.group_of]
        return (distance.float() * self.scales.float()[self.group_of]).T.contiguous()


def parts_of(words: torch.Tensor, bits: int) -> torch.Tensor:
    """words [...] int32 → [..., 32 / bits] int32, from the lowest bits on."""
    shifts = torch.arange(0, WORD_BITS, bits, dtype=torch.int32, device=words.device)
    return (words[..., None] >> shifts) & ((1 << bits) - 1)


def unpack_gptq(
    qweight: torch.Tensor, qzeros: torch.Tensor, bits: int, zero_offset: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """qweight [inner / parts, outputs], qzeros [groups, outputs / parts] → values [inner, outputs] uint8 and zeros
    [groups, outputs] int16.
    """
    values = parts_of(qweight, bits).transpose(1, 2).flatten(0, 1)
    zeros = parts_of(qzeros, bits).flatten(1) + zero_offset
    return values.to(torch.uint8), zeros.to(torch.int16)


def unpack_awq(qweight: torch.Tensor, qzeros: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """qweight [inner, outputs / parts], qzeros [groups, outputs / parts] → the same."""
    back = torch.tensor(AWQ_ORDER[bits], device=qweight.device).argsort()
    values, zeros = (parts_of(words, bits)[..., back].flatten(1) for words in (qweight, qzeros))
    return values.to(torch.uint8), zeros.to(torch.int16)

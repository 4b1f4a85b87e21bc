"""Where a file's tensor belongs in a module that holds all experts of a layer as one tensor.

Checkpoints have one tensor per expert and projection; transformers 5 stacks the experts, and the gate on up.
"""

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any, Final

import torch

# transformers' conversions that this module does, as (patterns of the file, pattern of the module).
_CONVERSIONS: Final = {
    ((".block_sparse_moe.",), (".mlp.",)),
    ((".experts.*.w1.weight", ".experts.*.w3.weight"), (".experts.gate_up_proj",)),
    ((".experts.*.w2.weight",), (".experts.down_proj",)),
    (("mlp.experts.*.gate_proj.weight", "mlp.experts.*.up_proj.weight"), ("mlp.experts.gate_up_proj",)),
    (("mlp.experts.*.down_proj.weight",), ("mlp.experts.down_proj",)),
}
_EXPERT: Final = re.compile(r"(.+\.mlp\.experts)\.(\d+)\.(w1|w2|w3|gate_proj|up_proj|down_proj)\.weight")
_HALVES: Final = {"w1": 0, "gate_proj": 0, "w3": 1, "up_proj": 1}


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor of the module, or one expert's, or half of the rows of that: 0 is the gate, 1 is up."""

    name: str
    expert: int | None = None
    half: int | None = None

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The part of the module's tensor, contiguous. Raises IndexError for an expert that it does not have."""
        if self.expert is None:
            return tensor
        whole = tensor[self.expert]
        return whole if self.half is None else whole.chunk(2)[self.half]


def is_known(conversions: Iterable[Any]) -> bool:
    """True if `part_of` does all of transformers' conversions of a model."""
    return all((tuple(each.source_patterns), tuple(each.target_patterns)) in _CONVERSIONS for each in conversions)


def part_of(stored: str, names: Container[str]) -> Part:
    """Where the file's tensor of this name belongs, in a module with tensors of these names."""
    if stored in names:
        return Part(stored)
    name = stored.replace(".block_sparse_moe.", ".mlp.")
    if (found := _EXPERT.fullmatch(name)) is None:
        return Part(name)
    half = _HALVES.get(found[3])
    merged = "down_proj" if half is None else "gate_up_proj"
    return Part(f"{found[1]}.{merged}", int(found[2]), half)

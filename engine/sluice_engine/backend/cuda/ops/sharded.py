"""The operations of a decoder whose weights are one rank's parts: the sums and gatherings over the ranks are part of them,
so a decode graph holds them too.
"""

from dataclasses import replace
from functools import partial

import torch
from torch.nn.functional import embedding

from sluice_engine.backend.cuda.ops.table import Operation, Ops
from sluice_engine.backend.parallel.collectives import embedded, joined_logits
from sluice_engine.backend.parallel.group import Group


def sharded(ops: Ops, group: Group, vocabulary: int) -> Ops:
    """`ops` on the rank's parts: two sums per layer, one for the embedding, and one gathering of the logits."""

    def logits(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return joined_logits(ops.logits(rows, weight, bias), vocabulary, group)

    def embed(tokens: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return embedded(tokens, len(weight), lambda own: embedding(own, weight), group)

    return replace(
        ops,
        embed=embed,
        output=_summed(ops.output, group),
        down=_summed(ops.down, group),
        experts=_summed(ops.experts, group),  # of the shared expert too, whose own product is not summed
        logits=logits,
    )


def _summed(product: Operation, group: Group) -> Operation:
    return partial(_sum, product, group)


def _sum(product: Operation, group: Group, *arguments: object) -> torch.Tensor:
    return group.sum(product(*arguments))

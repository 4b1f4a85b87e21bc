"""The operations of a forward pass that join the ranks' parts: the embedding, the sums of products, and the logits."""

from collections.abc import Callable, Sequence

import torch
from torch.nn.functional import pad

from sluice_engine.backend.parallel.group import Group
from sluice_engine.backend.parallel.plan import Cut


def part_of(tensor: torch.Tensor, cuts: Sequence[Cut]) -> torch.Tensor:
    """The rank's parts of a tensor, in memory of their own; the whole tensor without a cut."""
    if not cuts:
        return tensor
    parts = [_one_part(tensor, cut) for cut in cuts]
    return parts[0].clone() if len(parts) == 1 else torch.cat(parts, cuts[0].dim)


def _one_part(tensor: torch.Tensor, cut: Cut) -> torch.Tensor:
    size = tensor.shape[cut.dim]
    start, stop = min(cut.start, size), min(cut.stop, size)
    part = tensor.narrow(cut.dim, start, stop - start)
    missing = (cut.stop - cut.start) - (stop - start)
    return pad(part, (0, 0) * (tensor.dim() - 1 - cut.dim) + (0, missing)) if missing else part


def embedded(
    tokens: torch.Tensor, part: int, lookup: Callable[[torch.Tensor], torch.Tensor], group: Group
) -> torch.Tensor:
    """tokens [...] of the whole vocabulary → [..., hidden]. `lookup` gives the rows of the rank's `part` token ids; for
    the tokens of other ranks it adds zeros.
    """
    own = tokens - group.rank * part
    foreign = (own < 0) | (own >= part)
    rows = lookup(own.masked_fill(foreign, 0))
    return group.sum(rows.masked_fill(foreign.unsqueeze(-1), 0))


def joined_logits(part: torch.Tensor, vocabulary: int, group: Group) -> torch.Tensor:
    """The rank's part [N, part] of the logits → [N, vocabulary], contiguous."""
    whole = group.gather(part).transpose(0, 1).reshape(len(part), -1)
    return whole[:, :vocabulary].contiguous()

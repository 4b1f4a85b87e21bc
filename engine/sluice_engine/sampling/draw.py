"""One token per row by inverting the cumulative distribution at a given number: temperature, min-p, top-k, top-p.

The order is vLLM's: temperature, then min-p, then top-k, then top-p over what is left, renormalised. Top-k and top-p
need the tokens in order: that is `truncate.py`.
"""

import torch

BLOCK = 128  # columns that one step of the search leaves to the next


def scaled(scores: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """scores [R, V] over temperature [R, 1], shifted to a maximum of 0 first, so that a tiny temperature overflows to
    −∞ only."""
    return (scores - scores.amax(dim=-1, keepdim=True)) / temperature


def weights_of(scores: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """Unnormalised float32 probabilities of scores with maximum 0, those below min_p [R, 1] times the largest at 0.

    The largest weight is exp(0) = 1, so min-p is a threshold and needs no sum (Nguyen et al., 2024).
    """
    weights = scores.exp()
    return weights.masked_fill_(weights < min_p, 0.0)


def draw(weights: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """The column where the cumulative weight passes draw · total: weights [R, V], draws float64 [R, 1] → int64 [R, 1].

    A wide row is searched in two steps, first for the block of columns and then inside it, because running sums over
    all of it in float64 would cost more than everything else here.
    """
    rows, width = weights.shape
    if width <= 4 * BLOCK:
        cumulative = weights.double().cumsum(dim=-1)
        return _passed(cumulative, draws * cumulative[:, -1:])
    if width % BLOCK:
        weights = torch.nn.functional.pad(weights, (0, BLOCK - width % BLOCK))
    blocks = weights.view(rows, -1, BLOCK)
    cumulative = blocks.sum(dim=-1).double().cumsum(dim=-1)
    target = draws * cumulative[:, -1:]
    block = _passed(cumulative, target)
    before = torch.where(block > 0, cumulative.gather(-1, (block - 1).clamp(min=0)), 0.0)
    inside = blocks.gather(1, block[:, :, None].expand(rows, 1, BLOCK))[:, 0].double().cumsum(dim=-1)
    return block * BLOCK + _passed(inside, target - before)


def _passed(cumulative: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The first column whose running sum is above the target, and always one that has added something."""
    total = cumulative[:, -1:]
    # Below the total even where the target was rounded up to it.
    below = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))
    # A row that is not a number has no such column: it gets the last one, for its request fails, not its neighbours'.
    return torch.searchsorted(cumulative, below.clamp(min=0.0), right=True).clamp_(max=cumulative.shape[-1] - 1)

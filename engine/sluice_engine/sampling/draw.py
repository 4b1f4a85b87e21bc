"""Samples one token per row by inverting the cumulative distribution at a given number, after temperature and min-p.

The order is vLLM's: temperature, min-p, top-k, then top-p over the rest, renormalised. Top-k and top-p need sorted
tokens; `top_k_top_p.py` implements them.
"""

import torch

BLOCK = 128  # columns per block of the two-step search


def scaled(scores: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """scores [R, V] over temperature [R, 1]. Scores are first shifted to a maximum of 0, so that a tiny temperature can
    overflow only to −∞.
    """
    return (scores - scores.amax(dim=-1, keepdim=True)) / temperature


def weights_of(scores: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """Unnormalised float32 probabilities of scores with maximum 0; weights below min_p [R, 1] times the largest become
    0.

    The largest weight is exp(0) = 1, so min-p is a plain threshold and needs no sum (Nguyen et al., 2024).
    """
    weights = scores.exp()
    return weights.masked_fill_(weights < min_p, 0.0)


def draw(weights: torch.Tensor, draws: torch.Tensor) -> torch.Tensor:
    """The column where the cumulative weight exceeds draw · total: weights [R, V], draws float64 [R, 1] → int64 [R, 1].

    A wide row is searched in two steps, first over blocks of columns and then inside one block, because a float64
    cumulative sum over the whole row would dominate the sampler's time.
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
    """The first column whose cumulative sum exceeds the target; its weight is always positive."""
    total = cumulative[:, -1:]
    # Keeps the target below the total if it was rounded up to the total.
    below = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))
    # A NaN row has no such column and gets the last one, so that only its own request fails.
    return torch.searchsorted(cumulative, below.clamp(min=0.0), right=True).clamp_(max=cumulative.shape[-1] - 1)

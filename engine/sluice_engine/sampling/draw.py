"""One token per row by inverting the cumulative distribution at a given number: temperature, min-p, top-k, top-p.

The order is vLLM's: temperature, then min-p, then top-k, then top-p over what is left, renormalised. Top-k and top-p
need the tokens in order: that is `truncate.py`.
"""

import torch


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
    """The column where the cumulative weight passes draw · total: weights [R, V], draws float64 [R, 1] → int64 [R, 1]."""
    cumulative = weights.double().cumsum(dim=-1)
    total = cumulative[:, -1:]
    # Below the total even where the product rounds up to it: the search then always ends on a weight above 0.
    target = torch.minimum(draws * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, target, right=True)

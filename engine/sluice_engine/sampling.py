"""Choosing tokens for a whole batch at once.

Randomness is a counter: one uniform number from a hash of (request seed, position), so neither batching nor a
preemption changes what a request draws.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from sluice_engine.request import Sampling

NOT_A_NUMBER = -1  # in place of a token where the row's logits hold no usable number


def sample(logits: torch.Tensor, params: Sequence[Sampling], positions: Sequence[int]) -> list[int]:
    """A token id per row of logits [N, V]; NOT_A_NUMBER for a row with NaN or without any finite logit.

    Temperature first, then top-k, then top-p over what top-k left; a tie at the k-th place keeps the lower ids.
    """
    scores = logits.float()
    best, tokens = scores.max(dim=-1)  # NaN wins max, so a row with NaN shows in its best
    chosen: NDArray[np.int64] = tokens.cpu().numpy().astype(np.int64)
    random_rows = [row for row, sampling in enumerate(params) if sampling.temperature > 0.0]
    usable: NDArray[np.bool_] = torch.isfinite(best).cpu().numpy()
    random_rows = [row for row in random_rows if usable[row]]
    if random_rows:
        picked = scores[torch.tensor(random_rows, device=scores.device)]
        draws = uniform([params[row].seed for row in random_rows], [positions[row] for row in random_rows])
        chosen[random_rows] = _draw(picked, [params[row] for row in random_rows], draws).cpu().numpy()
    chosen[~usable] = NOT_A_NUMBER
    return [int(token) for token in chosen]


def uniform(seeds: Sequence[int], positions: Sequence[int]) -> NDArray[np.float64]:
    """One number in [0, 1) per (seed, position): two rounds of the SplitMix64 finaliser (Steele et al., 2014)."""
    with np.errstate(over="ignore"):
        mixed = _mix(np.array([seed & 0xFFFFFFFFFFFFFFFF for seed in seeds], dtype=np.uint64))
        mixed = _mix(mixed + np.array(positions, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _draw(scores: torch.Tensor, params: Sequence[Sampling], draws: NDArray[np.float64]) -> torch.Tensor:
    """Inverse of the cumulative distribution over tokens sorted by probability: scores [N, V] → ids [N]."""
    device = scores.device
    temperature = torch.tensor([p.temperature for p in params], dtype=torch.float32, device=device)[:, None]
    # Scores are shifted to a maximum of 0 before the division, so that a tiny temperature overflows to -inf only.
    scaled = (scores - scores.max(dim=-1, keepdim=True).values) / temperature
    ordered, ids = torch.sort(scaled, dim=-1, descending=True, stable=True)
    width = ordered.shape[-1]
    if any(p.top_k > 0 for p in params):
        keep = torch.tensor([p.top_k if p.top_k > 0 else width for p in params], device=device)[:, None]
        ordered = ordered.masked_fill(torch.arange(width, device=device) >= keep, float("-inf"))
    weights = torch.softmax(ordered, dim=-1).double()
    cumulative = weights.cumsum(dim=-1)
    top_p = torch.tensor([p.top_p for p in params], dtype=torch.float64, device=device)[:, None]
    # A token stays while what comes before it is below top_p; the first one always stays.
    weights = weights.masked_fill((cumulative - weights >= top_p) & (torch.arange(width, device=device) > 0), 0.0)
    cumulative = weights.cumsum(dim=-1)
    target = torch.from_numpy(draws).to(device)[:, None] * cumulative[:, -1:]
    place = torch.searchsorted(cumulative, target, right=True)
    last = (weights > 0).sum(dim=-1, keepdim=True) - 1  # a draw rounded up to the total stays on the last token
    return ids.gather(-1, torch.minimum(place, last)).squeeze(-1)

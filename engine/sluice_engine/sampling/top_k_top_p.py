"""Top-k and top-p without sorting the vocabulary: a few top candidates suffice for nearly every row.

A row is settled if its cut lies above the last candidate, so that no other token can be kept. Unsettled rows (a flat
distribution, a tie across the border) are sorted completely. Both paths give the same tokens in the same order, so the
other rows of a batch never change a row's sample.
"""

from typing import NamedTuple

import torch

from sluice_engine.sampling.draw import draw, weights_of

NUCLEUS = 128  # candidates for a row that asks for top-p alone
MARGIN = 32  # candidates beyond the k-th, to contain a tie at the k-th place


def draw_truncated(
    scores: torch.Tensor, min_p: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, draws: torch.Tensor
) -> torch.Tensor:
    """Sample from the top_k [R, 1] most likely tokens (0: all), reduced to the fewest that reach top_p [R, 1] → int64
    [R, 1].

    scores [R, V] have maximum 0; draws [R, 1] are float64. A tie at the k-th place keeps the lower ids, and the most
    likely token is always kept.
    """
    row = _Rows(scores, min_p, top_k, top_p, draws, weights_of(scores, min_p).double().sum(dim=-1, keepdim=True))
    width = scores.shape[-1]
    bounded = (top_k > 0) & (top_k < width)
    candidates = int(torch.where(bounded, top_k + MARGIN, NUCLEUS).max())
    if candidates * 4 > width:
        return _draw_sorted(row)
    values, ids = _candidates(scores, candidates)
    kept = _cut(values, row)
    drawn = ids.gather(-1, draw(kept, draws))
    # The kept tokens are a prefix; a row is settled if a candidate scores below the last kept token.
    last = values.gather(-1, ((kept > 0).sum(dim=-1, keepdim=True) - 1).clamp(min=0))
    unsettled = torch.nonzero(last[:, 0] <= values[:, -1])[:, 0]
    if len(unsettled):
        drawn[unsettled] = _draw_sorted(_Rows(*(column[unsettled] for column in row)))
    return drawn


class _Rows(NamedTuple):
    """Rows and their parameters: scores [R, V], the rest [R, 1]; `total` is the weight of all tokens after min-p."""

    scores: torch.Tensor
    min_p: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    draws: torch.Tensor
    total: torch.Tensor


def _draw_sorted(rows: _Rows) -> torch.Tensor:
    ordered, ids = torch.sort(rows.scores, dim=-1, descending=True, stable=True)
    return ids.gather(-1, draw(_cut(ordered, rows), rows.draws))


def _candidates(scores: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `count` largest scores and their ids in stable-sort order (`topk` leaves ties unordered)."""
    values, ids = torch.topk(scores, count, dim=-1, sorted=False)
    ids, order = ids.sort(dim=-1)
    values, order = values.gather(-1, order).sort(dim=-1, descending=True, stable=True)
    return values, ids.gather(-1, order)


def _cut(ordered: torch.Tensor, rows: _Rows) -> torch.Tensor:
    """Weights float64 [R, C] of descending scores; weights outside top-k and top-p are 0."""
    place = torch.arange(ordered.shape[-1], device=ordered.device)
    bounded = (rows.top_k > 0) & (rows.top_k < rows.scores.shape[-1])
    kept = weights_of(ordered, rows.min_p).double().masked_fill_(bounded & (place >= rows.top_k), 0.0)
    cumulative = kept.cumsum(dim=-1)
    reach = torch.where(bounded, cumulative[:, -1:], rows.total)
    # A token is kept while the sum before it is below top_p of the total; the first one is always kept.
    return kept.masked_fill_((cumulative - kept >= rows.top_p * reach) & (place > 0), 0.0)

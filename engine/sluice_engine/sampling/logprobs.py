"""Log-probabilities of the sampled token and of the top tokens, from the model's raw logits.

They are taken before bias, penalties and temperature, and also serve to score a given text.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sluice_engine.request import TokenLogprob

ROWS_AT_ONCE: Final = 32  # of a prompt's logits: a table of probabilities as large as these is made
LOWEST = -9999.0  # replaces −∞, which JSON cannot represent


class PromptTargets(NamedTuple):
    """Prompt tokens of one request whose logprobs are reported from the logits of the tokens before them."""

    request_id: str
    slot: int
    tokens: tuple[int, ...]


def prompt_logprobs(logits: torch.Tensor, tokens: Sequence[int], count: int) -> tuple[TokenLogprob, ...]:
    """Logprobs and ranks of prompt tokens [R] for logits [R, V], with `count` top tokens each (0..V)."""
    found: list[TokenLogprob] = []
    for first in range(0, len(tokens), ROWS_AT_ONCE):
        part = logits[first : first + ROWS_AT_ONCE]
        wanted = torch.tensor(tokens[first : first + ROWS_AT_ONCE], dtype=torch.int64, device=logits.device)
        ranks = (part > part.gather(-1, wanted[:, None])).sum(dim=-1) + 1
        scored = logprobs_of(part, wanted, np.full(len(part), count))
        found += [each._replace(rank=rank) for each, rank in zip(scored, ranks.tolist(), strict=True)]
    return tuple(found)


def logprobs_of(logits: torch.Tensor, tokens: torch.Tensor, counts: NDArray[np.int64]) -> list[TokenLogprob]:
    """Logprobs for logits [R, V] and tokens int64 [R]. `counts` [R] is the number of top tokens per row (0..V)."""
    table = torch.log_softmax(logits.float(), dim=-1).clamp_(min=LOWEST)
    chosen = table.gather(-1, tokens[:, None])[:, 0].tolist()
    most = min(int(counts.max()), table.shape[-1])
    if most == 0:
        return [TokenLogprob(logprob, ()) for logprob in chosen]
    best = table.topk(most, dim=-1)
    values, ids = best.values.tolist(), best.indices.tolist()
    return [
        TokenLogprob(chosen[row], tuple(zip(ids[row][:count], values[row][:count], strict=True)))
        for row, count in enumerate(np.minimum(counts, most).tolist())
    ]

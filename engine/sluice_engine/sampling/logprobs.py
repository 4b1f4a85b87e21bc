"""Log-probabilities of the sampled token and of the top tokens, from the model's raw logits.

They are taken before bias, penalties and temperature, and also serve to score a given text.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from sluice_engine.request import TokenLogprob

LOWEST = -9999.0  # replaces −∞, which JSON cannot represent


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

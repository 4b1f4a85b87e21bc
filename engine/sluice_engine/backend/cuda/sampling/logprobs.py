"""Logprobs of a step: by the kernel for few top tokens, which it finds one after the other, else by torch."""

import torch

from sluice_engine.backend.cuda.readback import LOGPROB_COUNTS
from sluice_engine.sampling.logprobs import LOWEST, ROWS_AT_ONCE
from sluice_kernels.sample import token_logprobs


def write_logprobs(logits: torch.Tensor, tokens: torch.Tensor, values: torch.Tensor, ids: torch.Tensor) -> None:
    """Of raw logits [R, V] the logprobs of tokens [R] and of the top ones into values [R, 1 + count] and ids [R, count]."""
    count = ids.shape[1]
    if count in LOGPROB_COUNTS:
        chosen, best, places = token_logprobs(logits, tokens, count)
        values[:, 0].copy_(chosen)
        values[:, 1:].copy_(best)
        ids.copy_(places)
        return
    for first in range(0, len(logits), ROWS_AT_ONCE):  # bounds the tables of probabilities
        rows = slice(first, first + ROWS_AT_ONCE)
        table = torch.log_softmax(logits[rows].float(), dim=-1).clamp_(min=LOWEST)
        top = table.topk(count, dim=-1)
        values[rows, :1].copy_(table.gather(-1, tokens[rows, None].clamp(min=0)))
        values[rows, 1:].copy_(top.values)
        ids[rows].copy_(top.indices)

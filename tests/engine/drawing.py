"""How tests drive the sampler: rows of logits with parameters in, tokens out."""

from collections.abc import Sequence

import numpy as np
import torch

from sluice_engine.request import Sampling
from sluice_engine.sampling import Sampled, Sampler


def sampled(
    logits: torch.Tensor,
    params: Sequence[Sampling],
    positions: Sequence[int],
    known: Sequence[int] = (),
    prompt_length: int = 0,
) -> Sampled:
    """A slot per row; every request knows `known`."""
    sampler = Sampler(len(params), logits.shape[-1], logits.device)
    for slot, sampling in enumerate(params):
        sampler.join(slot, sampling, known, prompt_length)
    return sampler.sample(logits, np.arange(len(params)), np.array(positions, dtype=np.int64))


def sample(logits: torch.Tensor, params: Sequence[Sampling], positions: Sequence[int]) -> list[int]:
    """The tokens alone."""
    return sampled(logits, params, positions).tokens

"""How tests drive the sampler: rows of logits with parameters in, tokens out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from sluice_engine.sampling import Sampled, Sampler
from sluice_engine.sampling_params import SamplingParams


def greedy(**fields: Any) -> SamplingParams:
    """Sampling parameters with temperature 0 unless `fields` sets one."""
    return SamplingParams(**({"temperature": 0.0} | fields))


def sampled(
    logits: torch.Tensor,
    params: Sequence[SamplingParams],
    positions: Sequence[int],
    known: Sequence[int] = (),
    prompt_length: int = 0,
    stop_ids: frozenset[int] = frozenset(),
) -> Sampled:
    """A slot per row; every request has the tokens `known`."""
    sampler = Sampler(len(params), logits.shape[-1], logits.device)
    for slot, sampling in enumerate(params):
        sampler.join(slot, sampling, known, prompt_length, stop_ids)
    return sampler.sample(logits, np.arange(len(params)), np.array(positions, dtype=np.int64))


def sample(logits: torch.Tensor, params: Sequence[SamplingParams], positions: Sequence[int]) -> list[int]:
    """The tokens alone."""
    return sampled(logits, params, positions).tokens

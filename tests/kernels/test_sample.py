"""Sampling on a CPU: the reference gives the engine's tokens."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from sluice_engine.sampling.rng import uniform
from sluice_engine.sampling.sampler import Sampler
from sluice_engine.sampling_params import SamplingParams
from sluice_kernels.sample import Bias, Draws, Penalties, Rows, sample
from sluice_kernels.sample.reference import uniform_reference

WIDTH = 700


def test_uniform_numbers_equal_the_engines_bit_for_bit() -> None:
    seeds = np.array([0, 1, -1, 2**63 - 1, -(2**63), 1234567], dtype=np.int64)
    positions = np.array([0, 1, 5, 2**31, 7, 131072], dtype=np.int64)
    ours = uniform_reference(torch.from_numpy(seeds), torch.from_numpy(positions)).numpy()
    assert ours.tolist() == uniform(seeds, positions).tolist()


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.7, top_k=20),
        SamplingParams(temperature=1.3, top_p=0.8),
        SamplingParams(temperature=1.0, top_k=50, top_p=0.5, min_p=0.01),
        SamplingParams(temperature=1.0, min_p=0.2),
        SamplingParams(temperature=1.0, repetition_penalty=1.4, frequency_penalty=0.3, presence_penalty=-0.5),
        SamplingParams(temperature=1.0, logit_bias={3: 9.0, 11: -100.0}, top_k=5),
    ],
)
def test_the_reference_samples_the_engines_tokens(params: SamplingParams) -> None:
    rows, generator = 12, torch.Generator().manual_seed(5)
    logits = torch.randn(rows, WIDTH, generator=generator) * 2
    known = torch.randint(0, WIDTH, (60,), generator=generator).tolist()
    params = replace(params, seed=77)
    engine = Sampler(1, WIDTH, torch.device("cpu"))
    positions = np.arange(rows, dtype=np.int64)
    # The rows are samples of one request at several positions, so its counts must not grow between them.
    theirs = [
        engine_token(engine, logits[row : row + 1], positions[row : row + 1], params, known) for row in range(rows)
    ]
    ours = sample(
        logits, Rows(torch.zeros(rows, dtype=torch.int32), torch.from_numpy(positions)), draws_of(params),
        penalties_of(params, known) if params.has_penalties else None,
        bias_of(params) if params.logit_bias else None,
    )  # fmt: skip
    assert ours.tolist() == theirs


def engine_token(
    engine: Sampler, logits: torch.Tensor, position: NDArray[np.int64], params: SamplingParams, known: list[int]
) -> int:
    engine.join(0, params, known, prompt_length=20)
    return engine.sample(logits, np.zeros(1, dtype=np.int64), position).tokens[0]


def draws_of(params: SamplingParams) -> Draws:
    return Draws(
        torch.tensor([params.temperature]), torch.tensor([params.min_p]),
        torch.tensor([params.top_k], dtype=torch.int32), torch.tensor([params.top_p], dtype=torch.float64),
        torch.tensor([params.seed or 0]),
    )  # fmt: skip


def penalties_of(params: SamplingParams, known: list[int]) -> Penalties:
    counts = torch.bincount(torch.tensor(known[20:]), minlength=WIDTH)[None].int()
    seen = torch.zeros(1, WIDTH, dtype=torch.bool)
    seen[0, known] = True
    factors = (params.repetition_penalty, params.frequency_penalty, params.presence_penalty)
    return Penalties(counts, seen, *(torch.tensor([factor]) for factor in factors))


def bias_of(params: SamplingParams) -> Bias:
    ids, values = zip(*params.logit_bias.items(), strict=True)
    return Bias(torch.tensor([ids]).int(), torch.tensor([values]), torch.tensor([len(ids)]).int())

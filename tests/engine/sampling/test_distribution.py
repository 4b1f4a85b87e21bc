"""Draws against exact probabilities (chi-square, fixed seeds), for every parameter that shapes a distribution."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from sluice_engine.sampling import Drafts, Sampler
from sluice_engine.sampling.draft_verify import NO_TOKEN
from sluice_engine.sampling.draw import draw
from sluice_engine.sampling_params import SamplingParams
from tests.engine.drawing import greedy, sampled

WIDTH = 24
DRAWS = 20_000
LOGITS = torch.from_numpy(np.random.default_rng(3).normal(0.0, 1.5, (1, WIDTH)).astype(np.float32))
KNOWN = [3, 5, 5, 7, 3, 9, 9, 9]  # the first four are the prompt
BIAS = {2: 1.5, 11: -100.0, 3: -0.5}
STOP_IDS = frozenset({9, 2})


def exact(sampling: SamplingParams, known: list[int] = KNOWN) -> NDArray[np.float64]:
    """The distribution that is asked for, written out naively from the definitions."""
    scores = LOGITS[0].double().numpy().copy()
    for token, value in sampling.logit_bias.items():
        scores[token] += value
    if sampling.min_tokens:
        scores[list(STOP_IDS)] = -np.inf
    generated = np.bincount(known[4:], minlength=WIDTH)
    for token in set(known):
        scores[token] = (
            scores[token] / sampling.repetition_penalty
            if scores[token] > 0
            else scores[token] * sampling.repetition_penalty
        )
    scores -= sampling.frequency_penalty * generated + sampling.presence_penalty * (generated > 0)
    scores /= sampling.temperature
    shares = np.exp(scores - scores.max())
    shares[shares < sampling.min_p] = 0.0
    order = np.argsort(-shares, kind="stable")
    if sampling.top_k:
        shares[order[sampling.top_k :]] = 0.0
    shares /= shares.sum()
    before = np.cumsum(shares[order]) - shares[order]
    shares[order[(before >= sampling.top_p) & (np.arange(WIDTH) > 0)]] = 0.0
    return shares / shares.sum()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"temperature": 0.6},
        {"temperature": 2.0},
        {"min_p": 0.1},
        {"top_k": 5},
        {"top_p": 0.8},
        {"top_k": 9, "top_p": 0.85, "min_p": 0.02, "temperature": 1.3},
        {"presence_penalty": 1.2},
        {"frequency_penalty": 0.9},
        {"presence_penalty": -1.0, "frequency_penalty": -0.3},
        {"repetition_penalty": 1.8},
        {"repetition_penalty": 0.6},
        {"logit_bias": BIAS},
        {"logit_bias": BIAS, "repetition_penalty": 1.3, "frequency_penalty": 0.4, "top_p": 0.9, "temperature": 0.8},
        {"min_tokens": DRAWS},
    ],
)
def test_draws_follow_the_exact_distribution(changes: dict[str, Any]) -> None:
    sampling = SamplingParams(**({"seed": 11, "max_tokens": None} | changes))
    tokens = sampled(LOGITS.expand(DRAWS, -1), [sampling] * DRAWS, range(DRAWS), KNOWN, 4, STOP_IDS).tokens
    assert_drawn_from(exact(sampling), tokens)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"temperature": 0.7, "min_p": 0.05},
        {"top_k": 6, "top_p": 0.9},
        {"logit_bias": BIAS, "repetition_penalty": 1.5, "frequency_penalty": 0.8, "presence_penalty": 0.5},
    ],
)
def test_draft_tokens_change_no_distribution(changes: dict[str, Any]) -> None:
    """Two draft tokens a request: what comes first, what comes behind an accepted one and what replaces a rejected one
    follows the exact distribution given what stands before it."""
    requests, drafts = DRAWS // 2, LOGITS[0].topk(2).indices.tolist()
    sampler = Sampler(requests, WIDTH, LOGITS.device)
    for slot in range(requests):
        sampling = SamplingParams(**({"seed": 1000 + slot} | changes))
        sampler.join(slot, sampling, KNOWN, 4)
    rows = np.arange(3 * requests)
    follows = np.tile(np.array([*drafts, NO_TOKEN]), requests)
    result = sampler.sample(
        LOGITS.expand(len(rows), -1), rows // 3, 8 + rows % 3, None, Drafts(rows - rows % 3, follows)
    )
    tokens, kept = np.array(result.tokens).reshape(-1, 3), np.asarray(result.kept).reshape(-1, 3)
    assert kept[:, 0].all()
    assert (kept[:, 1] == (tokens[:, 0] == drafts[0])).all()
    assert (kept[:, 2] == (kept[:, 1] & (tokens[:, 1] == drafts[1]))).all()
    said = list(KNOWN)
    for place in range(3):
        assert kept[:, place].sum() > 100
        assert_drawn_from(exact(sampling, said), tokens[kept[:, place], place].tolist())
        said.append(follows[place])


def assert_drawn_from(shares: NDArray[np.float64], tokens: list[int]) -> None:
    """Chi-square."""
    want, got = shares * len(tokens), np.bincount(tokens, minlength=WIDTH)
    assert got[want == 0].sum() == 0
    rare = (want > 0) & (want < 5)  # pooled: the chi-square approximation needs five expected per cell
    cells = [(got[i], want[i]) for i in np.flatnonzero(want >= 5)]
    if want[rare].sum() >= 5:
        cells.append((got[rare].sum(), want[rare].sum()))
    chi_square = sum((seen - expected) ** 2 / expected for seen, expected in cells)
    freedom = max(1, len(cells) - 1)
    # Wilson and Hilferty's quantile of chi-square at three and a half sigma (p = 0.0002).
    assert chi_square < freedom * (1 - 2 / (9 * freedom) + 3.5 * (2 / (9 * freedom)) ** 0.5) ** 3


def test_a_batch_of_every_kind_equals_each_row_alone() -> None:
    """What a row gets depends on nothing but its own request."""
    kinds: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 0.0, "frequency_penalty": 2.0},
        {"temperature": 1.0},
        {"temperature": 0.7, "min_p": 0.05},
        {"temperature": 1.1, "top_k": 4},
        {"temperature": 1.4, "top_p": 0.7, "repetition_penalty": 1.4},
        {"temperature": 0.9, "logit_bias": BIAS, "logprobs": 3},
        {"temperature": 0.9, "min_tokens": 500},
    ]
    params = [
        SamplingParams(**({"seed": index, "max_tokens": None} | kinds[index % len(kinds)])) for index in range(48)
    ]
    torch.manual_seed(1)
    logits = torch.randn(48, WIDTH) * 2
    before = logits.clone()
    together = sampled(logits, params, range(48), KNOWN, 4, STOP_IDS)
    assert torch.equal(logits, before)  # what the model gave stays as it is
    for row, sampling in enumerate(params):
        alone = sampled(logits[row : row + 1], [sampling], [row], KNOWN, 4)
        assert alone.tokens == together.tokens[row : row + 1]
        assert alone.logprobs.get(0) == together.logprobs.get(row)


@pytest.mark.parametrize("width", [512, 513, 1000, 1024])
def test_a_wide_row_draws_from_every_block_in_its_share(width: int) -> None:
    """Wide rows are searched by blocks: every hundredth token has weight, in all blocks, the last one included."""
    logits = torch.full((1, width), -math.inf)
    places = [*range(0, width, 100), width - 1]
    weights = np.arange(1, len(places) + 1, dtype=np.float64)
    logits[0, places] = torch.from_numpy(np.log(weights)).float()
    for min_p in (0.0, 0.0001):
        sampling = greedy(temperature=1.0, seed=5, min_p=min_p)
        tokens = sampled(logits.expand(DRAWS, -1), [sampling] * DRAWS, range(DRAWS)).tokens
        got = np.bincount(tokens, minlength=width)
        want = DRAWS * weights / weights.sum()
        assert got.sum() == got[places].sum()
        assert ((got[places] - want) ** 2 / want).sum() < 4 * len(places)


@pytest.mark.parametrize("width", [5, 600, 1000])
def test_a_draw_at_either_end_stays_on_a_token_with_weight(width: int) -> None:
    weights = torch.zeros(4, width)
    weights[:, 3] = weights[:, width - 2] = 1e-30
    ends = torch.tensor([0.0, 1e-300, 1.0 - 2**-53, 1.0], dtype=torch.float64)[:, None]
    assert draw(weights, ends)[:, 0].tolist() == [3, 3, width - 2, width - 2]

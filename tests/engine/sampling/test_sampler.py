"""Sampling: the requested distribution, and draws that depend on (seed, position) alone."""

from typing import Any

import numpy as np
import pytest
import torch

from sluice_engine.sampling import NOT_A_NUMBER, uniform
from sluice_engine.sampling_params import SamplingParams
from tests.engine.drawing import greedy, sample

LOGITS = torch.tensor([[1.0, 3.0, 2.0, 0.0, -1.0]])


def draws(logits: torch.Tensor, count: int, **params: Any) -> np.ndarray:
    """Shares of each token over `count` positions."""
    sampling = SamplingParams(seed=1, **params)
    tokens = sample(logits.expand(count, -1), [sampling] * count, range(count))
    return np.bincount(tokens, minlength=logits.shape[-1]) / count


def test_greedy_takes_the_largest() -> None:
    assert sample(LOGITS, [greedy()], [0]) == [1]


def test_temperature_one_draws_from_the_softmax() -> None:
    want = torch.softmax(LOGITS[0], dim=-1).numpy()
    assert np.abs(draws(LOGITS, 20_000) - want).max() < 0.01


def test_temperature_flattens_and_a_tiny_one_is_greedy() -> None:
    want = torch.softmax(LOGITS[0] / 2.0, dim=-1).numpy()
    assert np.abs(draws(LOGITS, 20_000, temperature=2.0) - want).max() < 0.01
    assert draws(LOGITS, 100, temperature=1e-30)[1] == 1.0


@pytest.mark.parametrize("width", [5, 8192])
@pytest.mark.parametrize("params", [{}, {"top_p": 0.9}, {"top_k": 3}])
def test_a_temperature_below_the_range_of_float32_is_greedy(width: int, params: dict[str, Any]) -> None:
    logits = torch.linspace(0.0, 1.0, width)[None]
    sampling = greedy(seed=1, temperature=1e-46, **params)
    assert sample(logits, [sampling], [0]) == [width - 1]


def test_top_k_keeps_the_k_most_likely() -> None:
    shares = draws(LOGITS, 5000, top_k=2)
    assert shares[1] + shares[2] == 1.0 and shares[2] > 0.2
    assert draws(LOGITS, 100, top_k=1)[1] == 1.0
    assert (draws(LOGITS, 5000, top_k=50) > 0).all()


def test_top_p_keeps_the_smallest_set_that_reaches_p() -> None:
    probabilities = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    assert (draws(probabilities, 3000, top_p=0.79) > 0).tolist() == [True, True, False, False]
    assert (draws(probabilities, 3000, top_p=0.81) > 0).tolist() == [True, True, True, False]
    assert draws(probabilities, 100, top_p=1e-9)[0] == 1.0


def test_top_p_works_on_what_top_k_left() -> None:
    probabilities = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    # of top-2, renormalised, the first has 4/7 = 0.571
    assert draws(probabilities, 200, top_k=2, top_p=0.56)[0] == 1.0
    assert draws(probabilities, 2000, top_k=2, top_p=0.58)[1] > 0.3


def test_a_draw_depends_on_seed_and_position_not_on_the_batch() -> None:
    torch.manual_seed(0)
    logits = torch.randn(40, 100)
    params = [greedy(temperature=0.9, top_k=row % 5 * 10, top_p=0.95, seed=row) for row in range(40)]
    together = sample(logits, params, range(40))
    alone = [sample(logits[row : row + 1], [params[row]], [row])[0] for row in range(40)]
    backwards = sample(logits.flip(0), params[::-1], range(39, -1, -1))
    assert together == alone == backwards[::-1]


def test_greedy_and_random_rows_share_a_batch() -> None:
    rows = sample(LOGITS.expand(3, -1), [greedy(), greedy(temperature=5.0, seed=3), greedy()], [0, 0, 0])
    assert rows[0] == rows[2] == 1


def test_the_counter_is_uniform_and_never_one() -> None:
    numbers = uniform([7] * 50_000, range(50_000))
    assert numbers.min() >= 0.0 and numbers.max() < 1.0
    assert np.histogram(numbers, bins=20, range=(0, 1))[0].std() < 100
    assert np.corrcoef(numbers[:-1], numbers[1:])[0, 1] == pytest.approx(0.0, abs=0.02)
    assert len(set(uniform(range(1000), [0] * 1000))) == 1000


def test_a_negative_or_huge_seed_is_a_seed() -> None:
    assert uniform([-1], [0])[0] != uniform([2**64 + 5], [0])[0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_a_number_fails_alone(bad: float) -> None:
    logits = LOGITS.repeat(3, 1)
    logits[1, 2] = bad
    for temperature in (0.0, 1.0):
        tokens = sample(logits, [greedy(temperature=temperature, seed=1)] * 3, [0, 0, 0])
        assert tokens[1] == NOT_A_NUMBER and tokens[0] == tokens[2] != NOT_A_NUMBER
